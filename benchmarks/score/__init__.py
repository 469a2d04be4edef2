"""Scores `weaklink diagnose` on the cases in `tests/cases`, from outside: by what it prints with `--json`."""
