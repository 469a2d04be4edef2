"""An instrument that was asked for by name, in a disposable rerun: it waits for its step, measures, and ends the run.

The process is thrown away, so that an instrument may put a function mode over a step and train the run's own model. It
answers in figures, or with the reason why it has none.
"""
