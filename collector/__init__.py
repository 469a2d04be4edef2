"""Everything that touches torch or the user's code: observing, the ledger's rows, interventions, workers.

Importing this package loads no torch. The agent imports only its torch-free modules (`evidence`, `catalogue`, `errors`,
`job`, `processes`, `supervision`, `workers`, `scratch`); a test holds that line.
"""
