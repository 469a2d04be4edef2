"""Advisors: who names mechanisms and one experiment. One protocol, one method; the contract judges them all alike."""
