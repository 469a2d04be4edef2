"""The loss at every backward call, read without making the run wait for its device."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from weaklink.collector.watching.tape import Tape

# On an accelerator, reading a loss waits for it: that many are brought over at once.
PENDING_LIMIT = 50


class LossReader:
    """Puts losses on the tape: at once on the CPU, in batches from a device."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._pending: list[tuple[int, int, Tensor]] = []
        self._unscaled: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}

    def scaled(self, result: Tensor, original: Tensor) -> None:
        """A gradient scaler multiplied a loss: remember what it was before."""
        if result is not original:
            self._unscaled = {id(result): (weakref.ref(result), original.detach())}

    def note(self, index: int, loss: Tensor | None, at_once: bool) -> float | None:
        """Take the loss of the `index`-th backward call. Its value where it was read now; None if it is no scalar."""
        if loss is None or loss.numel() != 1 or loss.device.type == "meta":
            return None
        known = self._unscaled.get(id(loss))
        self._unscaled = {}
        if known is not None and known[0]() is loss:
            loss = known[1]
        # A clone: the script may write into its loss before it is read.
        self._pending.append((index, self._tape.steps + 1, loss.detach().clone()))
        if loss.device.type == "cpu" or at_once or len(self._pending) >= PENDING_LIMIT:
            return self.flush()
        return None

    def flush(self) -> float | None:
        """Bring pending losses to the host, one transfer; the last one's value."""
        pending, self._pending = self._pending, []
        if not pending:
            return None
        scalars = [loss.reshape(()) for _, _, loss in pending]
        if len({(scalar.device, scalar.dtype) for scalar in scalars}) > 1:
            scalars = [scalar.cpu().double() for scalar in scalars]
        values = torch.stack(scalars).cpu().double().tolist()
        for (index, step, _), value in zip(pending, values, strict=True):
            self._tape.losses.add(index, value)
            if value - value != 0.0 and self._tape.first_nonfinite_loss is None:
                self._tape.first_nonfinite_loss, self._tape.first_nonfinite_step = index, step
        return float(values[-1])
