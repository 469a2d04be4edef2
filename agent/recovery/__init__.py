"""Whether a repair recovers an incident: baseline and repair run on several seeds, judged by the incident's own row."""
