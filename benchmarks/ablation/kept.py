"""Answers kept as files, so that nothing is asked twice, and that an answer pasted from a chat window counts too."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ablation.prompts import Arm
from ablation.subjects import Subject
from weaklink.collector.evidence import Float, Model

LARGEST = 2**20  # bytes of a pasted answer

Found = Literal["kept", "pasted", "stale", "missing"]


class Tokens(Model):
    """None: the endpoint did not say."""

    prompt: int | None = None
    answer: int | None = None


class Kept(Model):
    """One answer. `diagnosis` is what an experiment came to, None in the other arms."""

    prompt_sha256: str
    text: str
    model: str
    endpoint: str = ""
    tokens: Tokens = Tokens()
    cost: Float | None = None
    seconds: Float | None = None
    when: str = ""
    diagnosis: dict[str, Any] | None = None


@dataclass(frozen=True)
class Shelf:
    """The answers of one model, below `root`."""

    root: Path
    model: str
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", self.root / folder_name(self.model))

    def path(self, arm: Arm, subject: Subject, ending: str) -> Path:
        """Where something of an arm and a subject is kept."""
        return self.folder / arm / f"{subject.file_name}{ending}"

    def find(self, arm: Arm, subject: Subject, prompt_sha256: str) -> tuple[Kept | None, Found]:
        """The answer to this very prompt, and how it came here; None where there is none, or only one to another."""
        stale = False
        path = self.path(arm, subject, ".json")
        if path.is_file():
            kept = _read(path)
            if kept is not None and kept.prompt_sha256 == prompt_sha256:
                return kept, "kept"
            stale = True
        answer, prompt = self.path(arm, subject, ".answer.txt"), self.path(arm, subject, ".prompt.md")
        text = _beginning(answer).strip() if answer.is_file() else ""
        if not text:
            return None, "stale" if stale else "missing"
        # Who pasted the answer had read the prompt that lies beside it.
        if not prompt.is_file() or prompt_key(prompt.read_bytes().decode("utf-8", "replace")) != prompt_sha256:
            return None, "stale"
        return Kept(prompt_sha256=prompt_sha256, text=text, model=self.model), "pasted"

    def keep(self, arm: Arm, subject: Subject, answer: Kept) -> None:
        """Write an answer; an interruption leaves the whole file or none."""
        path = self.path(arm, subject, ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        # Escaped, since a model may say what no UTF-8 file can hold.
        half.write_text(json.dumps(answer.model_dump(mode="json"), indent=1), encoding="ascii")
        os.replace(half, path)

    def write_prompt(self, arm: Arm, subject: Subject, text: str) -> Path:
        """Write the prompt that somebody pastes into a chat window."""
        path = self.path(arm, subject, ".prompt.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "backslashreplace"))
        return path


def prompt_key(text: str) -> str:
    """SHA-256 of a prompt as one text, however an editor ended its lines."""
    return hashlib.sha256("\n".join(text.splitlines()).encode("utf-8", "backslashreplace")).hexdigest()


def folder_name(model: str) -> str:
    """A model's name as one part of a path; two different names never share one."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", model)[:80].lstrip(".") or "_"
    return safe if safe == model else f"{safe}-{hashlib.sha256(model.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _read(path: Path) -> Kept | None:
    """A kept answer; None where the file is damaged: then it is asked again."""
    try:
        # Not pydantic's own parser: it refuses half a pair of surrogates, which a model may say.
        return Kept.model_validate(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return None


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(LARGEST).decode("utf-8", "replace")
