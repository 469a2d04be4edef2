"""The part of the watcher that takes the close-up: made only in a rerun that exists for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.close_up.mode import OPERATIONS, CloseUpMode
from weaklink.collector.close_up.nonfinite import BackwardListener, forward_origin, unfinished_origin
from weaklink.collector.close_up.operations import LOSSES, RESHAPING
from weaklink.collector.close_up.records import Broadcast, CloseUpRecord, Compared, Origin, Term
from weaklink.collector.close_up.terms import addends, comparison
from weaklink.collector.close_up.values import Operation, Value, ancestors, cuts_of
from weaklink.collector.evidence import Site
from weaklink.collector.job import CLOSE_UP_STEPS
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import BackwardSample, CutSample, StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# What happened at the line of a cut that no call of its own makes.
_SAID = {
    "no_grad": "gradients switched off here",
    "checkpoint": "a re-entrant checkpoint, none of whose inputs needs a gradient",
}
# Backward calls without a step, after which what came before is forgotten: a run that only accumulates, or that skips.
_BACKWARDS = 64


class CloseUp(Part):
    """Sees every operation of a few steps, and reads from them, before each backward, what the loss is made of."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._mode = CloseUpMode(watcher)
        self._record = self.tape.record(CloseUpRecord)
        self._listener: BackwardListener | None = None
        # Terms with what was cut off: whether any loss reaches that otherwise is known at the end.
        self._pending: list[tuple[Term, list[Value]]] = []
        self._pushed = False
        self._since = 0
        self._cuts: list[CutSample] = []
        self._stepped = False

    def install(self) -> None:
        """Push the mode; it stays, and passes everything through between the windows."""
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        self._pushed = True
        self.watcher.wrap(torch, "compile", self._compiles)
        self.watcher.wrap(torch, "from_numpy", self._from_numpy)
        self.watcher.wrap(torch.inference_mode, "__enter__", self._enters_inference)
        self._open(1)

    def _compiles(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._stop("the script compiles; its operations are not seen one by one")
        return original(*args, **kwargs)

    def _from_numpy(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        # The one copy that a function mode does not see.
        return self._mode.__torch_function__(original, (), args, kwargs)

    def _enters_inference(self, original: Any, context: Any) -> Any:
        if context.mode:
            self._mode.guarded(self._mode.switches, False)
        return original(context)

    def _stop(self, problem: str | None) -> None:
        self._mode.active = False
        self._record.problem = self._record.problem or problem
        # Below a mode of the script's own it has to stay: whoever leaves takes the topmost one away.
        if self._pushed and _topmost() is self._mode:
            self._pushed = False
            self._mode.__exit__(None, None, None)

    def _open(self, step: int) -> None:
        starts = self.watcher.settings.close_up_at
        self._mode.active = self._pushed and any(start <= step < start + CLOSE_UP_STEPS for start in starts)
        if any(start <= step + 1 < start + CLOSE_UP_STEPS for start in starts):
            self.watcher.sample_next()

    # -- backward --------------------------------------------------------------------------------------------------

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """Read what the losses are made of while all of it is known."""
        if not self._mode.active:
            return
        self._record.backwards += 1
        step = self.tape.steps + 1
        if step not in self._record.steps:
            self._record.steps.append(step)
        if self._mode.operations >= OPERATIONS:
            self._record.problem = f"a step has more than {OPERATIONS} operations"
            return
        for loss in losses[:4]:
            if isinstance(loss, Tensor) and loss.requires_grad:
                self._read(loss, step)

    def _read(self, loss: Tensor, step: int) -> None:
        value, backward = self._mode.book.of(loss), self.tape.last_backward_site
        reached = list(ancestors(value))
        operations = list({id(v.operation): v.operation for v in reached if v.operation is not None}.values())
        for used in ancestors(value, with_history=True):
            used.used = True
        if backward is not None:
            self._record.losses.setdefault(backward.place, []).append(step)
        self._record.influences |= value.parameters
        terms = addends(value)
        self._read_terms(terms, step, backward)
        self._read_compared(terms, step, backward)
        self._read_meetings(value, step)
        self._read_cuts(operations)
        if not torch.isfinite(loss).all():
            made = forward_origin(value)
            if made is not None:
                self._record.origins.append(Origin(step, "forward", made.name, made.site))
        else:
            self._listener = BackwardListener()
            self._listener.listen(loss)

    def _read_terms(self, terms: list[Value], step: int, backward: Site | None) -> None:
        for addend in terms:
            cuts = [] if addend.history else cuts_of(addend)
            cuts = [cut for cut in cuts if any(operand.history for operand in cut.operands)]
            if not cuts or not addend.parameters or len(self._pending) >= 256:
                continue
            cut = cuts[0]
            sources = [operand for cut in cuts for operand in cut.operands if operand.history]
            parameters = {serial for serial in range(addend.parameters.bit_length()) if addend.parameters >> serial & 1}
            assert cut.cut is not None
            assert cut.cut_site is not None
            term = Term(step, backward, cut.cut_site, cut.cut, parameters, addend.number)
            self._record.terms.append(term)
            # A term that was used otherwise in parts (a surrogate with another value) is no term that was lost.
            behind = [value for source in sources for value in ancestors(source) if _is_term(value) or value is source]
            self._pending.append((term, behind))

    def _read_compared(self, terms: list[Value], step: int, backward: Site | None) -> None:
        for operation in (term.operation for term in terms):
            if operation is None or operation.name not in LOSSES or len(operation.operands) < 2:
                continue
            self._record.compared_calls += 1
            first, second = operation.operands[:2]
            kind = comparison(operation.name, first, second)
            if kind is not None and len(self._record.compared) < 64:
                made = first.operation.site if first.operation is not None else None
                count = self._record.backwards
                self._record.compared.append(Compared(step, count, operation.name, kind, operation.site, made))

    def _read_meetings(self, loss: Value, step: int) -> None:
        reached = list(ancestors(loss, with_history=True))
        if any(value.operation is not None and value.operation.all_pairs for value in reached):
            return  # outputs meet each other as well: a distance between two samples, in which no row has a partner
        for value in reached:
            operation = value.operation
            if operation is None or operation.meeting is None or len(self._record.broadcasts) >= 64:
                continue
            output, target = operation.meeting.output, operation.meeting.target
            self._record.broadcasts.append(
                Broadcast(
                    step,
                    operation.site,
                    operation.name,
                    output.shape,
                    target.shape,
                    operation.meeting.digest,
                    _dropped_at(output) if _made_by_hand(target) else None,
                )
            )

    def _read_cuts(self, operations: list[Operation]) -> None:
        """The cuts on the way to a loss, each at the line that made it."""
        if self._stepped:
            self._cuts.clear()
            self._stepped = False
        for operation in operations:
            if operation.cut is None or operation.cut_site is None:
                continue
            lost = 0
            for operand in operation.operands:
                lost |= operand.parameters if operand.history else 0
            leaves = {serial for serial in range(lost.bit_length()) if lost >> serial & 1}
            words = _SAID.get(operation.cut, f"{operation.name} called")
            site = operation.cut_site.model_copy(update={"what": words})
            # Reading `.data` is no call that could be left out.
            kind = "copy" if operation.name == "data" else operation.cut
            self._cuts.append(CutSample(site, leaves, kind, exact=True))  # type: ignore[arg-type]

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Of the cuts since the last step, those of what this optimizer holds: a critic may detach a generator."""
        self._stepped = True
        window = self.watcher.cuts.window
        if window is None:
            return
        held = set(entry.held)
        for cut in self._cuts[:256]:
            if cut.leaves & held and not any(c.exact and c.site.place == cut.site.place for c in window.cuts):
                window.cuts = [known for known in window.cuts if known.site.place != cut.site.place]
                window.cuts.append(CutSample(cut.site, cut.leaves & held, cut.kind, exact=True))

    def backward_ended(self, sample: BackwardSample | None) -> None:
        """Ask the hooks who made the first gradient that is not finite."""
        listener, self._listener = self._listener, None
        if listener is not None and (found := listener.origin()) is not None:
            self._record.origins.append(Origin(self.tape.steps + 1, "backward", *found))
        self._since += 1
        if self._mode.active and self._since >= _BACKWARDS:
            self._over()

    # -- steps -----------------------------------------------------------------------------------------------------

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """Open or close the window of the next step."""
        if self._mode.active:
            self._over()
        self._open(self.tape.steps + 1)

    def unfinished_origin(self) -> Origin | None:
        """What made the first value that is not finite since the last step, where no backward came after it."""
        made = unfinished_origin(self._mode.book.made)
        return None if made is None else Origin(self.tape.steps + 1, "forward", made.name, made.site)

    def _over(self) -> None:
        self._since = 0
        self._mode.window_over()

    def finish(self) -> None:
        """Say of each cut term whether some loss reached what was cut off."""
        self._stop(None)
        for term, sources in self._pending:
            term.elsewhere = any(source.used for source in sources)
        self._pending.clear()


def _is_term(value: Value) -> bool:
    """Whether it may be a term of a loss: one number, and no parameter of one entry."""
    return value.single and not value.leaf


def _topmost() -> Any:
    from torch.overrides import _get_current_function_mode

    return _get_current_function_mode()  # type: ignore[no-untyped-call]


def _made_by_hand(value: Value) -> bool:
    """Whether the user gave it its shape, somewhere: then this is the shape that is meant."""
    return value.operation is None or value.operation.name in RESHAPING


def _dropped_at(value: Value) -> Site | None:
    """The line that dropped the last dimension: a reduction of the user's, where nothing but entry by entry follows."""
    while (made := value.operation) is not None:
        taken = [operand for operand in made.operands if operand.history]
        if not taken:
            return None
        if all(len(operand.shape) > len(value.shape) for operand in taken):
            return made.site
        if taken[0].shape != value.shape:
            return None
        value = taken[0]
    return None
