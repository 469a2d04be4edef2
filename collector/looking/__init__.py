"""Looks that take forwards and fits of the run's own model, on batches that the run itself trained on.

Nothing here runs in the user's process: see `collector/looks.py`.
"""
