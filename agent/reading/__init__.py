"""Reading for a language model: files within one folder, bounded, secrets masked, nothing executed."""
