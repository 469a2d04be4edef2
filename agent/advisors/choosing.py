"""Who is asked: the built-in playbook, unless somebody asks for a language model, a recording, or a chat window.

A model is asked for by the command line (`--advisor openai`, or `--model` alone) or by WEAKLINK_ADVISOR in the
environment. A file in the project only says which one, and what it may be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from weaklink.agent.advisors.asking import Asking, Pasting, Telling
from weaklink.agent.advisors.base import Advisor
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.cli.said import SaidAdvisor
from weaklink.agent.conversation.limits import DEFAULT_CONTEXT, SMALLEST_CONTEXT, Limits
from weaklink.agent.progress import Progress
from weaklink.agent.settings import ModelSettings
from weaklink.collector.errors import UsageError

ADVISORS = ("playbook", "openai", "recorded", "paste")


def choose(
    said: SaidAdvisor, file: ModelSettings, environment: Mapping[str, str], progress: Progress
) -> Advisor | Asking | Pasting:
    """The advisor that was asked for.

    Args:
        said: The command line.
        file: The table `[model]` of weaklink.toml.
        environment: The process's environment.
        progress: Where a speaker reports.

    Raises:
        UsageError: There is no such advisor, or options contradict each other.
        AdvisorError: A recording is missing or damaged.
    """
    name = _name(said, environment)
    if name == "openai":
        return _model(said, file, environment, progress)
    if name == "recorded":
        return _recorded(said, file, progress)
    _refuse_idle(said, name)
    if name == "paste":
        return Pasting(telling(said, file))
    return Playbook()


def telling(said: SaidAdvisor, file: ModelSettings) -> Telling:
    """What may be told in words.

    Raises:
        UsageError: The context is too small, or the folder to read in is none.
    """
    context = said.context or file.context or DEFAULT_CONTEXT
    if context < SMALLEST_CONTEXT:
        raise UsageError(
            f"A context of {context} tokens is too small.",
            about="--context",
            hint=f"{SMALLEST_CONTEXT} tokens are the least that hold a chain, an experiment and the contract.",
        )
    root = None if said.read is None else Path(said.read)
    if root is not None and not root.is_dir():
        raise UsageError("There is no such folder.", about=f"--read {said.read}", hint="name the project's folder.")
    limits = Limits(
        reads=Limits.reads if file.reads is None else file.reads,
        instruments=Limits.instruments if file.instruments is None else file.instruments,
    )
    return Telling(context=context, source=said.source and file.source, root=root, limits=limits)


def _name(said: SaidAdvisor, environment: Mapping[str, str]) -> str:
    if said.advisor is None and said.recording is not None:
        return "recorded"
    if said.advisor is None and (said.model is not None or said.base_url is not None):
        return "openai"
    name = said.advisor or environment.get("WEAKLINK_ADVISOR") or Playbook.name
    if name not in ADVISORS:
        about = "--advisor" if said.advisor else "WEAKLINK_ADVISOR"
        raise UsageError(f"There is no advisor {name!r}.", about=about, hint=f"there are: {', '.join(ADVISORS)}.")
    return name


def _refuse_idle(said: SaidAdvisor, name: str) -> None:
    """An option that would do nothing was meant for something."""
    if said.model is not None or said.base_url is not None or said.api_key_env is not None:
        raise UsageError(
            f"The {name} advisor asks no endpoint.",
            about="--model, --base-url, --api-key-env",
            hint="leave --advisor out, or make it `--advisor openai`.",
        )
    if said.recording is not None:
        raise UsageError(f"The {name} advisor reads no recording.", about="--recording", hint="leave --advisor out.")


def _model(said: SaidAdvisor, file: ModelSettings, environment: Mapping[str, str], progress: Progress) -> Asking:
    from weaklink.agent.endpoint.settings import resolve_endpoint
    from weaklink.agent.endpoint.speaker import ChatCompletions

    if said.recording is not None:
        raise UsageError("The openai advisor reads no recording.", about="--recording", hint="leave --advisor out.")
    endpoint = resolve_endpoint(said, environment, file)
    return Asking(ChatCompletions(endpoint, progress), telling(said, file), endpoint.host)


def _recorded(said: SaidAdvisor, file: ModelSettings, progress: Progress) -> Asking:
    from weaklink.agent.conversation.recordings import Recorded, read_recording

    if said.recording is None:
        raise UsageError(
            "No recording was named.",
            about="--advisor recorded",
            hint="name one with --recording FILE; `weaklink export INCIDENT --format recording` makes one.",
        )
    path = Path(said.recording)
    recording = read_recording(path)
    speaker = Recorded(recording, path, progress)
    return Asking(speaker, telling(said, file), recording.endpoint, recording.spoken, tuple(recording.operator))
