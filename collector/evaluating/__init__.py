"""A look at an evaluation: the model as it is, its pairs, and what the training pairs say about them.

Nothing here runs in the user's process: see `collector/looks.py`.
"""
