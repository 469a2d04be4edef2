"""Gradients as the parameters received them: missing, non-finite, exactly zero or nonzero."""

from __future__ import annotations

from torch import Tensor

from weaklink.collector.evidence import GradientState
from weaklink.collector.tensors import dense, digest, nonfinite, norms, zeros_by_norm
from weaklink.collector.watching.parameters import (
    FIRST_GRADIENT_DIGEST_BYTES,
    ParameterBook,
    ParameterEntry,
    is_lazy,
)


def _with_gradient(parameters: ParameterBook) -> list[tuple[ParameterEntry, Tensor]]:
    return [
        (entry, tensor.grad)
        for entry, tensor in parameters.alive()
        if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None
    ]


def left_over(parameters: ParameterBook) -> dict[int, float]:
    """Norms of the gradients that are present and not exactly zero, by parameter serial number."""
    found = _with_gradient(parameters)
    gradients = [gradient for _, gradient in found]
    lengths = norms(gradients)
    zero = zeros_by_norm(gradients, lengths)
    return {e.serial: length for (e, _), none, length in zip(found, zero, lengths, strict=True) if not none}


def read_gradients(parameters: ParameterBook, with_digests: bool) -> dict[int, tuple[GradientState, float | None]]:
    """State and Euclidean norm of every live leaf's gradient, right after backward; also kept on the entries.

    A norm of zero with nonzero entries (underflow) is still *nonzero*: the state is decided by the entries.
    """
    found = _with_gradient(parameters)
    gradients = [gradient for _, gradient in found]
    lengths = norms(gradients)
    zero = zeros_by_norm(gradients, lengths)
    # A norm overflows where every entry is finite: only then are the entries asked.
    doubtful = [index for index, length in enumerate(lengths) if length - length != 0.0]
    broken = dict(zip(doubtful, nonfinite([gradients[index] for index in doubtful]), strict=True))
    result: dict[int, tuple[GradientState, float | None]] = {}
    for index, ((entry, _), length, is_zero) in enumerate(zip(found, lengths, zero, strict=True)):
        state: GradientState = "zero" if is_zero else "nonfinite" if broken.get(index, False) else "nonzero"
        result[entry.serial] = (state, length)
    for entry, tensor in parameters.alive():
        if entry.in_model and tensor.requires_grad and entry.serial not in result:
            result[entry.serial] = ("missing", None)
    budget = FIRST_GRADIENT_DIGEST_BYTES if with_digests else 0
    by_serial = {entry.serial: gradient for entry, gradient in found}
    for serial, (state, norm) in result.items():
        entry = parameters.entries[serial]
        entry.states.append(state)
        if entry.gradient is None:
            entry.gradient, entry.gradient_norm_first = state, norm
            gradient = by_serial.get(serial)
            if gradient is not None and budget > 0:
                values = dense(gradient)
                budget -= values.numel() * values.element_size()
                entry.gradient_digest_first = digest(gradient)
    return result


def digest_parameters(parameters: ParameterBook) -> None:
    """Hash every live model parameter's values, once, as they are before any update; as many bytes as for gradients."""
    budget = FIRST_GRADIENT_DIGEST_BYTES
    for entry, tensor in parameters.alive():
        if entry.in_model and not is_lazy(tensor) and budget > 0:
            budget -= tensor.numel() * tensor.element_size()
            entry.digest_first = digest(tensor)
