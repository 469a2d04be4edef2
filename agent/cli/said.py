"""What a command line declares, as typed. Plain data: it is made before a command loads anything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """The options of one command line that declare something; None and empty: not said."""

    task: str | None = None
    rule: str | None = None
    user_code: tuple[str, ...] = ()
    trainable: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    classes: int | None = None
    config: str | None = None

    @property
    def intends(self) -> bool:
        """Whether anything was said that only a run can be held against."""
        return bool(self.trainable or self.frozen or self.classes or self.config)


@dataclass(frozen=True)
class SaidAdvisor:
    """The options of one command line on who is asked, and on what may be told; None: not said."""

    advisor: str | None = None
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    context: int | None = None
    source: bool = True
    read: str | None = None
    recording: str | None = None
