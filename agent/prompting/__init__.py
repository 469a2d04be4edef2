"""What a language model is shown: the brief within a token budget, excerpts of source and data, the blank prompt."""
