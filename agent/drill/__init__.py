"""The drill: name the branch of a run, measure it first, split its causes by one control, try the first fix over seeds."""
