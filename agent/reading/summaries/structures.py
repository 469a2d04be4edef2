"""A pickle's value in words: a line an entry with its path, tensors by shape and norm, optimizers in short."""

from __future__ import annotations

import math
from typing import Any

from weaklink.agent.reading.decoding import shown_line, shown_name
from weaklink.agent.reading.summaries.numbers import Statistics, short
from weaklink.agent.reading.summaries.pickles import Call, Many, Name, Persistent
from weaklink.agent.reading.summaries.tensors import Reader, Tensor

_MOST_LINES = 160
_DEEPEST = 6
_GROUP_SCALARS = ("lr", "initial_lr", "momentum", "betas", "eps", "weight_decay", "max_grad_norm", "maximize")
_STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip


def structure_text(value: Any, reader: Reader) -> list[str]:
    """A line an entry, at most 160 of them; the reader tells the tensors' numbers."""
    walk = _Walk(reader)
    walk.tell("", value, 0)
    if walk.unseen:
        walk.lines.append(f"... and {walk.unseen} more entries")
    return walk.lines


class _Walk:
    """Writes a line an entry, its path in the structure first."""

    def __init__(self, reader: Reader) -> None:
        self.lines: list[str] = []
        self.unseen = 0
        self._reader = reader

    def tell(self, path: str, value: Any, depth: int) -> None:
        if len(self.lines) >= _MOST_LINES:
            self.unseen += 1
            return
        tensor = tensor_of(value)
        if tensor is not None:
            self.lines.append(f"{path or 'one tensor'}  {self._reader.text(tensor)}")
            return
        content = _content(value)
        if content is None:
            self.lines.append(f"{path or 'one value'} = {scalar_text(value)}")
        elif _is_optimizer(content):
            self._optimizer(path, content)
        elif depth >= _DEEPEST:
            self.lines.append(f"{path}  {_count_text(content)}")
        else:
            self._container(path, value, content, depth)

    def _container(self, path: str, value: Any, content: Many, depth: int) -> None:
        named = _class_text(value)
        self.lines.append(f"{path or 'at the top'}  {named}{_count_text(content)}")
        entries: list[tuple[Any, Any]] = content.pairs or list(enumerate(content.items))
        if isinstance(value, Call):  # a module brings a dozen empty dictionaries of hooks
            entries = [(key, inner) for key, inner in entries if not _is_empty(inner)]
        if not content.pairs and all(_is_scalar(item) for item in content.items):
            shown = ", ".join(scalar_text(item) for item in content.items[:8])
            self.lines[-1] += f" ({shown}{', ...' if len(content.items) > 8 else ''})"
            return
        room = max(_MOST_LINES - len(self.lines), 0)
        for key, inner in entries[:room]:
            name = shown_name(key[:200]) if isinstance(key, str) else scalar_text(key)
            self.tell(f"{path}.{name}" if path else name, inner, depth + 1)
        self.unseen += max(len(entries) - room, 0)

    def _optimizer(self, path: str, content: Many) -> None:
        groups, state = content.get("param_groups"), content.get("state")
        held = state.pairs if isinstance(state, Many) else []
        self.lines.append(f"{path or 'at the top'}  state of an optimizer: {len(held)} parameters with a state")
        for number, group in enumerate(groups.items[:16] if isinstance(groups, Many) else []):
            if not isinstance(group, Many):
                continue
            parameters = group.get("params")
            count = len(parameters.items) if isinstance(parameters, Many) else 0
            scalars = [f"{key} = {self._small(group.get(key))}" for key in _GROUP_SCALARS if group.get(key) is not None]
            self.lines.append(f"  group {number}: {count} parameters; {', '.join(scalars)}")
        self._moments(held)

    def _moments(self, held: list[tuple[Any, Any]]) -> None:
        """Per name of a state (`step`, `exp_avg`, ...) its values' range over the parameters, norms for tensors."""
        found: dict[str, Statistics] = {}
        bad: dict[str, int] = {}
        for _, entries in held:
            for key, value in (entries.pairs if isinstance(entries, Many) else [])[:16]:
                name = key[:60] if isinstance(key, str) else scalar_text(key)
                number = self._magnitude(value)
                if number is not None and len(found) < 16:
                    found.setdefault(name, Statistics()).add([number], 0)
                bad[name] = bad.get(name, 0) + (number is not None and not math.isfinite(number))
        for name, statistics in found.items():
            what = "value" if name == "step" else "norm"
            told = "finite nowhere"
            if statistics.finite:
                told = f"{short(statistics.least)} to {short(statistics.most)} over {statistics.finite} parameters"
            damaged = f", {bad[name]} not finite" if bad[name] else ""
            self.lines.append(f"  {shown_name(name)}  {what} {told}{damaged}")

    def _magnitude(self, value: Any) -> float | None:
        if isinstance(value, int | float):
            return float(value)
        tensor = tensor_of(value)
        if tensor is None:
            return None
        try:
            found = self._reader.statistics(tensor)
        except (ValueError, KeyError, OSError):
            return None
        if isinstance(found, str) or not found.count:
            return None
        if found.finite < found.count:
            return math.nan
        return found.mean if tensor.numel == 1 else found.norm

    def _small(self, value: Any) -> str:
        if isinstance(value, Many):
            return "(" + ", ".join(scalar_text(item) for item in value.items[:8]) + ")"
        tensor = tensor_of(value)
        return self._reader.text(tensor) if tensor is not None else scalar_text(value)


def _content(value: Any) -> Many | None:
    """What is inside of a container or of an object that a call would make; None for a scalar."""
    if isinstance(value, Many):
        return value
    if not isinstance(value, Call):
        return None
    if value.held.pairs or value.held.items:
        return value.held
    if isinstance(value.state, Many):
        return value.state
    if isinstance(value.arguments, Many) and value.arguments.items:
        return value.arguments
    return Many("dict")


def _is_empty(value: Any) -> bool:
    if tensor_of(value) is not None:
        return False
    content = _content(value)
    return content is not None and not content.pairs and not content.items


def _is_optimizer(content: Many) -> bool:
    return isinstance(content.get("param_groups"), Many) and isinstance(content.get("state"), Many)


def _class_text(value: Any) -> str:
    if not isinstance(value, Call):
        return ""
    name = value.name.dotted if isinstance(value.name, Name) else "an object"
    return "" if name == "collections.OrderedDict" else f"would be made by {shown_name(name[:200])}, "


def _count_text(content: Many) -> str:
    return f"{content.kind} of {len(content.pairs) or len(content.items)}"


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | bytes)


def scalar_text(value: Any) -> str:
    """A scalar as it is shown, cut; anything else by what it is."""
    if isinstance(value, str):
        return repr(shown_line(value, 120))
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else "an integer of more than 30 digits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes"
    if isinstance(value, Name):
        return f"the name {shown_name(value.dotted[:200])}"
    if isinstance(value, Persistent):
        return "something kept outside of the pickle"
    return f"{value.kind} of {len(value.pairs) or len(value.items)}" if isinstance(value, Many) else "an object"


def tensor_of(value: Any, depth: int = 0) -> Tensor | None:
    """The tensor that a call would build, None where it would build none."""
    if not isinstance(value, Call) or not isinstance(value.name, Name) or depth > 3:
        return None
    name = value.name.dotted.rsplit(".", 1)[-1]
    arguments = value.arguments.items if isinstance(value.arguments, Many) else []
    if name in ("_rebuild_parameter", "_rebuild_parameter_with_state") and arguments:
        return tensor_of(arguments[0], depth + 1)
    if name == "_rebuild_from_type_v2" and len(arguments) > 2:
        return tensor_of(Call(arguments[0], arguments[2]), depth + 1)
    if name not in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3") or len(arguments) < 4:
        return None
    storage, offset, shape, strides = arguments[:4]
    identity = storage.key.items if isinstance(storage, Persistent) and isinstance(storage.key, Many) else []
    if len(identity) < 3 or not isinstance(identity[1], Name):
        return None
    dtype = _STORAGES.get(identity[1].dotted.rsplit(".", 1)[-1], identity[1].dotted)
    if name.endswith("v3") and len(arguments) > 6 and isinstance(arguments[6], Name):
        dtype = arguments[6].dotted.removeprefix("torch.")
    sizes, steps = _integers(shape), _integers(strides)
    if sizes is None or steps is None or not isinstance(offset, int):
        return None
    return Tensor(sizes, dtype, offset, steps, str(identity[2]))


def _integers(value: Any) -> tuple[int, ...] | None:
    items = value.items if isinstance(value, Many) else None
    if items is None or len(items) > 64 or not all(isinstance(item, int) and abs(item) < 2**62 for item in items):
        return None
    return tuple(items)
