"""The drill: the branch of a run, its first measurement, one control that splits its causes, a fix over seeds."""
