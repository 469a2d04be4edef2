"""The bounded conversation with a language model: what is said, what may be looked at, how an answer is read."""
