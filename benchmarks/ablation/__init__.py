"""What the evidence is worth to a language model: the same cases with source, with evidence, with both, and rerun."""
