"""Looks at the data a run was given: the same item twice, rows in their stored order, targets beside other rows."""
