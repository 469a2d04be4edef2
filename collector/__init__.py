"""Everything that touches torch or the user's code: observing, the ledger's rows, interventions, workers.

For notebooks and factories: `learning_ledger`, `watch`, `TrainingSystem`. Importing this package loads no torch; these
names do, when they are asked for. The agent imports only the torch-free modules (`evidence`, `catalogue`, `errors`,
`job`, `processes`, `supervision`, `workers`, `scratch`, `table`); a test holds that line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weaklink.collector.chain import LearningChain
    from weaklink.collector.ledger import learning_ledger
    from weaklink.collector.notebook import watch
    from weaklink.collector.system import TrainingSystem

__all__ = ["LearningChain", "TrainingSystem", "learning_ledger", "watch"]

_MODULES = {"LearningChain": "chain", "TrainingSystem": "system", "learning_ledger": "ledger", "watch": "notebook"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
