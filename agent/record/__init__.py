"""The incident record: an append-only chain of canonical JSON lines that another person can check."""
