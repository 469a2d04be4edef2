"""Binary files in words, one file a kind: read with the standard library, never loaded, never run."""

from weaklink.agent.reading.summaries.choosing import Summary, summary_of, summary_suits

__all__ = ["Summary", "summary_of", "summary_suits"]
