"""The jinja2 templates of what an advisor is shown, and nothing else."""
