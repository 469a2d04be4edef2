"""Where in the user's code the parts of a model are made and called, asked inside of a look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from weaklink.collector.evidence import Site
from weaklink.collector.watching.parameters import ParameterBook
from weaklink.collector.watching.sites import UserCode

Place = dict[str, Any]


@dataclass
class Places:
    """Asks the watcher's books. What it answers is JSON: a look brings nothing else back."""

    code: UserCode
    parameters: ParameterBook

    def made(self, module: nn.Module) -> list[Place]:
        """Where a module with parameters was made; empty where that is not known."""
        for parameter in module.parameters():
            created = self.parameters.entry(parameter).created
            if created is not None:
                return [created.model_dump()]
        return []

    def called(self, what: str) -> list[Place]:
        """The user's line that is being executed."""
        site = self.code.site(what)
        return [site.model_dump()] if site is not None else []

    def of_calls(self, model: nn.Module, run: Callable[[], Any]) -> list[tuple[nn.Module, list[Place]]]:
        """Every module that is called below the model while `run` runs, in order, and the user's line that calls it."""
        found: list[tuple[nn.Module, list[Place]]] = []

        def before(module: nn.Module, args: Any) -> None:
            found.append((module, self.called(f"{type(module).__name__} called")))

        handles = [module.register_forward_pre_hook(before) for module in model.modules() if module is not model]
        try:
            run()
        finally:
            for handle in handles:
                handle.remove()
        return found


def sites(places: list[Place] | None) -> list[Site]:
    """The sites that a look brought back, each once."""
    found: list[Site] = []
    for place in places or []:
        site = Site(**place)
        if all(site.place != known.place for known in found):
            found.append(site)
    return found
