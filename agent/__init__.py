"""Everything that thinks and writes: advisors, contract, session, verifier, record, reports, command line.

Never imports torch: the evidence file is all it needs. A test holds that line.
"""
