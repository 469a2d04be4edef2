"""A replay on disk: a folder with a script, its receipt, and where needed a `replay.json` that says what to run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Model

SCRIPT = "train.py"
SETTINGS = "replay.json"
RECEIPT = "receipt.json"


class Story(Model):
    """What follows the first diagnosis, where a replay tells of a repair (`story.py`). Files are in its folder.

    Attributes:
        config: What the operator declares, as in `weaklink.toml`.
        facts: What the operator says in words.
        reference: A script that prints the reference for the seeds on its command line.
        reference_is: What it computes and how, in words.
        seeds: Each attempt is run with each of them as its one argument.
        tolerance: Largest difference in any number, relative to the largest number of the reference there.
        attempts: Repaired scripts, in the order in which they were tried, and whether each is expected to be complete.
        does_not_prove: What the comparison leaves open, in words.
    """

    config: str
    facts: list[str] = Field(min_length=1)
    reference: str
    reference_is: str
    seeds: list[int] = Field(min_length=3)
    tolerance: float = Field(gt=0, lt=1)
    attempts: dict[str, bool] = Field(min_length=1)
    does_not_prove: list[str] = Field(min_length=1)


class Settings(Model):
    """What `weaklink diagnose` is given: subject and rule as on its command line, relative to the replay's folder.

    With `drill`, the number of seeds, it is `weaklink drill` that runs, and no diagnosis.
    """

    subject: str = SCRIPT
    arguments: list[str] = []
    rule: str | None = None
    drill: int | None = Field(default=None, ge=1)
    story: Story | None = None


@dataclass(frozen=True)
class Replay:
    """One replay, by its folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def receipt(self) -> Path:
        return self.folder / RECEIPT

    def settings(self) -> Settings:
        """What to run; without a `replay.json` the script, without arguments.

        Raises:
            UsageError: The file cannot be read, or holds something else.
        """
        path = self.folder / SETTINGS
        if not path.exists():
            return Settings()
        try:
            return Settings.model_validate_json(path.read_bytes())
        except OSError as error:
            problem = error.strerror or str(error)
        except ValidationError as error:
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc'])) or 'the whole file'}: {first['msg']}"
        hint = f"it may hold {', '.join(Settings.model_fields)}."
        raise UsageError(f"The replay's settings cannot be read: {problem}.", about=str(path), hint=hint)


def replays_in(root: Path) -> list[Replay]:
    """All replays in a folder, by name.

    Raises:
        UsageError: There is no such folder, or none in it.
    """
    if not root.is_dir():
        raise UsageError("There is no such folder of replays.", about=str(root), hint="name it with --in DIR.")
    found = [Replay(folder) for folder in sorted(root.iterdir()) if _is_replay(folder)]
    if not found:
        hint = f"a replay is a folder with a {SCRIPT}; name the folder that holds them with --in DIR."
        raise UsageError("There is no replay in this folder.", about=str(root), hint=hint)
    return found


def find_replay(word: str, root: Path) -> Replay:
    """The replay of that name in `root`, or the one whose folder was named.

    Raises:
        UsageError: There is none; lists those there are.
    """
    for folder in (root / word, Path(word)):
        if _is_replay(folder):
            return Replay(folder)
    if root.is_dir():
        names = [replay.name for replay in map(Replay, sorted(root.iterdir())) if _is_replay(replay.folder)]
        hint = f"there are: {', '.join(names)}." if names else f"there is none in {root}."
    else:
        hint = "name the folder that holds them with --in DIR."
    raise UsageError("There is no such replay.", about=word, hint=hint)


def _is_replay(folder: Path) -> bool:
    return (folder / SCRIPT).is_file() or (folder / SETTINGS).is_file()
