"""The desk of one diagnosis: where a model's requests to see something are answered."""

from __future__ import annotations

from collections.abc import Callable

from weaklink.agent.conversation.looks import Look, Looked, RunInstrument
from weaklink.agent.reading.library import Library


class ProjectDesk:
    """Files from the library, instruments from reruns of the subject.

    Args:
        library: The project's files; None where nothing may be read.
        run: Runs an instrument by name at an optimizer step (None: its own choice); None where nothing can be rerun.
    """

    def __init__(self, library: Library | None, run: Callable[[str, int | None], Looked] | None) -> None:
        self._library, self._run = library, run

    def look(self, request: Look) -> Looked:
        """What was asked for, or why not."""
        if isinstance(request, RunInstrument):
            if self._run is None:
                return _refused(request, "no instrument can be run: the script is not here, or reruns are off")
            return self._run(request.name, request.step)
        if self._library is None:
            return _refused(request, "no file is shown: reading was switched off (--no-source)")
        return self._library.look(request)


def _refused(request: Look, why: str) -> Looked:
    return Looked(do=request.do, request=request.model_dump(exclude={"do"}), ok=False, text=why)
