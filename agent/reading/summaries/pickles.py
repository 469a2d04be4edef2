"""Pickles read as data: their opcodes are followed by hand, nothing is imported, nothing is called.

To load a pickle is to run it. Here a global is its dotted name, a call is a name with arguments, and a stored tensor is
what the pickle says about it. Dictionaries are lists of pairs: no hash of a hostile key is ever taken.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from weaklink.agent.reading.summaries.source import BoundError, Source

MOST_OPERATIONS = 400_000
_MARK = object()
_CONSTANTS = {
    "NONE": None, "NEWTRUE": True, "NEWFALSE": False,
}  # fmt: skip
_EMPTY = {"EMPTY_LIST": "list", "EMPTY_TUPLE": "tuple", "EMPTY_DICT": "dict", "EMPTY_SET": "set"}
_FROM_MARK = {"LIST": "list", "TUPLE": "tuple", "FROZENSET": "set"}
_SMALL = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(eq=False)
class Many:
    """A list, tuple, set (`items`) or dictionary (`pairs`)."""

    kind: str
    items: list[Any] = field(default_factory=list)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def get(self, key: str) -> Any:
        """The last value that a text key was given, None where there is none."""
        for name, value in reversed(self.pairs):
            if isinstance(name, str) and name == key:
                return value
        return None


@dataclass(frozen=True, eq=False)
class Name:
    """A global, by its dotted name."""

    dotted: str


@dataclass(eq=False)
class Call:
    """An object that loading would make by a call, and the state that it would be given."""

    name: Any
    arguments: Any
    state: Any = None
    held: Many = field(default_factory=lambda: Many("dict"))  # what was put into it by item


@dataclass(frozen=True, eq=False)
class Persistent:
    """Something kept outside of the pickle, by its identifier."""

    key: Any


def read_pickle(file: BinaryIO, source: Source) -> Any:
    """The value that one pickle describes, out of scalars, `Many`, `Name`, `Call` and `Persistent`.

    Raises:
        ValueError: It is no pickle, or has more than `MOST_OPERATIONS` operations.
    """
    machine = _Machine()
    for number, (operation, argument, _) in enumerate(pickletools.genops(file)):
        if number > MOST_OPERATIONS:
            raise BoundError(f"it has more than {MOST_OPERATIONS} operations")
        if number % 1024 == 0:
            source.check_time()
        machine.step(operation.name, argument)
    if not machine.stack:
        raise ValueError("the pickle leaves nothing")
    return machine.stack[-1]


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """One operation. Unknown ones push their argument: what follows may look odd, and harms nobody."""
        stack = self.stack
        if name in ("PROTO", "FRAME", "STOP", "READONLY_BUFFER"):
            return
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(Many(_EMPTY[name]))
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _FROM_MARK:
            stack.append(Many(_FROM_MARK[name], self._from_mark()))
        elif name in _SMALL:
            count = _SMALL[name]
            items = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            stack.append(Many("tuple", items))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if name == "MEMOIZE" else int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[int(argument)])
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._from_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        else:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name == "DICT":
            stack.append(Many("dict", pairs=_pairs(self._from_mark())))
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            items = [stack.pop()] if name == "APPEND" else self._from_mark()
            _items_of(stack[-1]).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            if name == "SETITEM":
                value = stack.pop()
                items = [stack.pop(), value]
            else:
                items = self._from_mark()
            _pairs_of(stack[-1]).extend(_pairs(items))
        elif name == "GLOBAL":
            stack.append(Name(str(argument).replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(Name(f"{module}.{attribute}" if isinstance(module, str) else "?"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = stack.pop()
            stack.append(Call(stack.pop(), arguments))
        elif name == "NEWOBJ_EX":
            stack.pop()
            arguments = stack.pop()
            stack.append(Call(stack.pop(), arguments))
        elif name in ("INST", "OBJ"):
            items = self._from_mark()
            made = Name(str(argument).replace(" ", ".")) if name == "INST" else items.pop(0)
            stack.append(Call(made, Many("tuple", items)))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], Call):
                stack[-1].state = state
        elif name == "BINPERSID":
            stack.append(Persistent(stack.pop()))
        elif name == "PERSID":
            stack.append(Persistent(argument))
        elif name in ("EXT1", "EXT2", "EXT4"):
            stack.append(Name(f"extension {argument}"))
        else:
            self.stack.append(argument)

    def _from_mark(self) -> list[Any]:
        items: list[Any] = []
        while True:
            item = self.stack.pop()
            if item is _MARK:
                items.reverse()
                return items
            items.append(item)


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(items[::2], items[1::2], strict=False))


def _items_of(value: Any) -> list[Any]:
    if isinstance(value, Many):
        return value.items
    return value.held.items if isinstance(value, Call) else []


def _pairs_of(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Many):
        return value.pairs
    return value.held.pairs if isinstance(value, Call) else []
