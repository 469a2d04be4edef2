"""What is put to a model: the broken variant of a case, or the repaired one, in which nothing is left to find."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from score.cases import KINDS, Case, Variant, read_cases

HEALTHY, FIXED = "healthy", "fixed"
# The order in which a sample takes them: a small one has healthy runs too, and no boundary twice before all are in.
BUCKETS = (
    "OWNERSHIP",
    "OBJECTIVE",
    HEALTHY,
    "GRADIENT",
    "TASK",
    FIXED,
    "UPDATE",
    "EVALUATION",
    "DEPENDENCY",
    "CAPABILITY",
)


@dataclass(frozen=True)
class Subject:
    """One variant of a case. Its name is for us: a model sees neither it nor the folder's."""

    case: Case
    variant: Variant

    @property
    def name(self) -> str:
        """`scripts/stale_head`, or `scripts/stale_head@fixed`."""
        return f"{self.case.kind}/{self.case.name}" + ("@fixed" if self.variant == "fixed" else "")

    @property
    def file_name(self) -> str:
        """The name as one part of a path."""
        return self.name.replace("/", "__")

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.case.healthy or self.variant == "fixed"

    @property
    def bucket(self) -> str:
        """What a balanced sample is spread over."""
        if self.variant == "fixed":
            return FIXED
        return HEALTHY if self.case.healthy else str(self.case.expected["first_boundary"])

    @property
    def lacks(self) -> list[str]:
        """Packages that it needs and that are not installed."""
        return [name for name in self.case.expected.get("requires") or [] if importlib.util.find_spec(name) is None]


def read_subjects(root: Path, wanted: Sequence[str] = ()) -> list[Subject]:
    """All variants below `root`, in the order of their names.

    Args:
        root: The folder of the cases.
        wanted: Patterns of names (`scripts/*`, `stale_head`, `*@fixed`); none: all.
    """
    found: list[Subject] = []
    seen: set[tuple[str, ...]] = set()
    for case in read_cases(root, KINDS):
        found.append(Subject(case, "broken"))
        # All faults of a project have the same repaired variant; one for each command is enough.
        same = ("projects", case.name.partition("/")[0], *case.arguments)
        if case.has_fixed and (case.kind != "projects" or same not in seen):
            found.append(Subject(case, "fixed"))
            seen.add(same)
    return [subject for subject in found if not wanted or any(_named(subject, pattern) for pattern in wanted)]


def _named(subject: Subject, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (subject.name, subject.name.partition("/")[2]))


def sample(subjects: Iterable[Subject], count: int, seed: int = 0) -> list[Subject]:
    """A balanced choice: one of each boundary and of the healthy ones in turn.

    The same seed gives the same choice, and a larger count one that begins with it, so that a small sample can be
    extended without asking anything twice.
    """
    waiting: dict[str, list[Subject]] = {bucket: [] for bucket in BUCKETS}
    for subject in subjects:
        waiting.setdefault(subject.bucket, []).append(subject)
    for bucket, members in waiting.items():
        members.sort(key=lambda subject: subject.name)
        random.Random(f"{seed} {bucket}").shuffle(members)
    chosen: list[Subject] = []
    while len(chosen) < count and any(waiting.values()):
        for members in waiting.values():
            if members and len(chosen) < count:
                chosen.append(members.pop(0))
    return chosen


def digest(root: Path, subject: Subject) -> str:
    """SHA-256 over the files that the case is made of, so that what was kept of another state of them is not used."""
    folder = root / subject.case.kind / subject.case.name
    if subject.case.kind == "projects":
        folder = root / "projects" / subject.case.name.partition("/")[0]
    whole = hashlib.sha256(subject.name.encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        whole.update(f"{path.relative_to(folder).as_posix()}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()
