"""Rows as a table that a person reads, in a terminal or a notebook. No torch here: the reports use it as well."""
