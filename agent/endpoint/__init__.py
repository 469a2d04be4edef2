"""The wire to an OpenAI-compatible endpoint: client, keys, streaming, the ladder of structured output."""
