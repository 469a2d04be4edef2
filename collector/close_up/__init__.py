"""The close-up: a disposable rerun of a few steps in which every operation of the user's code is seen with its line."""
