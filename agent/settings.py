"""What the user declares: `weaklink.toml` in the working folder, and the options of the command line, which win."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from weaklink.agent.cli.said import Said
from weaklink.agent.subject_files import named_function
from weaklink.collector.declared import Intent
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Model

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "weaklink.toml"
_SCHEMA = "see docs/intent.md for a whole file."


class ModelSettings(Model):
    """The file's table `[model]`: which language model is asked where one is asked, and what it may be told.

    The file alone never asks one, and never holds a key: a repository that somebody cloned must not be able to send
    anything anywhere. Prices are US dollars a million tokens.
    """

    name: str | None = None
    base_url: str | None = None
    context: int | None = None
    source: bool = True
    deadline: float | None = None
    price_input: float | None = None
    price_output: float | None = None
    reads: int | None = None
    instruments: int | None = None


class FileSettings(Intent):
    """The file's top level: what can be intended, and the options that have the same name on the command line."""

    task: str | None = None
    rule: str | None = None
    user_code: list[str] = []
    model: ModelSettings = ModelSettings()


@dataclass(frozen=True)
class Settings:
    """What a run is held against, from both sources. `rule` has its file as the working folder sees it."""

    task: str | None
    rule: str | None
    user_code: tuple[str, ...]
    intent: Intent
    model: ModelSettings = field(default_factory=ModelSettings)


def read_settings(said: Said, folder: Path | None = None) -> Settings:
    """The declarations of the command line, and for what it does not say those of the file.

    Args:
        said: What stood on the command line. Its `config` names another file than `weaklink.toml`.
        folder: The working folder, by default the current one.

    Raises:
        UsageError: The file cannot be read, has an unknown key or a value of the wrong kind, or a function it names is
            not there.
    """
    folder = Path.cwd() if folder is None else folder
    name = said.config or FILE
    found = _read(folder / name, name, needed=said.config is not None)
    rule = said.rule if said.rule is not None else found.rule
    for label, function in found.slices.items():
        named_function(function, folder, f"[slices] {label}")
    intent = Intent(
        trainable=list(said.trainable) or found.trainable,
        frozen=list(said.frozen) or found.frozen,
        classes=said.classes if said.classes is not None else found.classes,
        objectives=found.objectives,
        metric=found.metric,
        slices=found.slices,
    )
    return Settings(
        task=said.task if said.task is not None else found.task,
        rule=named_function(rule, folder, "--rule" if said.rule is not None else f"rule in {name}"),
        user_code=said.user_code or tuple(found.user_code),
        intent=intent,
        model=found.model,
    )


def _read(path: Path, name: str, needed: bool) -> FileSettings:
    if not needed and not path.exists():
        return FileSettings()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError("There is no such file.", about=f"--config {name}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The file cannot be read: {error}.", about=name) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"This is no TOML: {error}.", about=name, hint=_SCHEMA) from error
    try:
        return FileSettings.model_validate(content, strict=True)
    except ValidationError as error:
        found = error.errors()
        # A misspelt key is missing under its own name as well: that one is what the user can see.
        unknown = [each for each in found if each["type"] == "extra_forbidden"]
        raise _refusal((unknown or found)[0], name) from error


def _refusal(error: ErrorDetails, name: str) -> UsageError:
    """The first thing that is wrong, by its key."""
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] != "extra_forbidden":
        said = error["msg"].replace("Input should be", "it should be")
        return UsageError(f"The value of {key} cannot be used: {said}.", about=name, hint=_SCHEMA)
    known = _keys_at(error["loc"][:-1])
    near = difflib.get_close_matches(str(error["loc"][-1]), known, n=1, cutoff=0.0)
    nearest = f"the nearest known one is {near[0]}" if near else "there is none"
    return UsageError(f"There is no key {key}.", about=name, hint=f"{nearest}; known are {', '.join(known)}.")


def _keys_at(place: tuple[int | str, ...]) -> list[str]:
    """The keys that the table at this place may have."""
    model: type[BaseModel] = FileSettings
    for part in place:
        field = model.model_fields.get(str(part))
        if field is not None and (inner := _model_in(field.annotation)) is not None:
            model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation holds: itself, in a union, or as a table's values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
