"""Operators that a CPU build of torch has for CUDA alone, composed of others: the cells of LSTM and GRU, and choices.

References
----------
PyTorch: the documentation of `torch.nn.LSTM` and `torch.nn.GRU`; the signatures in `native_functions.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, cat, stack, tanh

from cutepy.frontends.torch_device.scaled_products import scaled_grouped_mm, scaled_mm


def _gates(
    first: Tensor, second: Tensor, first_bias: Tensor | None, second_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Add the biases, in float32 where the gates have 16 bits, as CUDA's kernels compute."""
    found: list[Tensor] = []
    for gates, bias in ((first, first_bias), (second, second_bias)):
        wide = gates if gates.element_size() > 2 else gates.float()
        found.append(wide if bias is None else wide + bias)
    return found[0], found[1]


def _lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the hidden state, the cell state, and the activated gates for the derivative."""
    x, h = _gates(input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = (x + h).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), tanh(g), o.sigmoid()
    cell = f * cx + i * g
    hidden = o * tanh(cell)
    return hidden.to(cx.dtype), cell.to(cx.dtype), cat((i, f, g, o), 1).to(cx.dtype)


def _lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the derivatives by gates, cell state and bias."""
    i, f, g, o = workspace.chunk(4, 1)
    squashed = tanh(cy)
    by_hidden = cx.new_zeros(cx.shape) if grad_hy is None else grad_hy
    by_cell = by_hidden * o * (1 - squashed * squashed)
    if grad_cy is not None:
        by_cell = by_cell + grad_cy
    gates = cat(
        (
            by_cell * g * i * (1 - i),
            by_cell * cx * f * (1 - f),
            by_cell * i * (1 - g * g),
            by_hidden * squashed * o * (1 - o),
        ),
        1,
    )
    return gates, by_cell * f, gates.sum(0) if has_bias else gates.new_empty(0)


def _gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the hidden state, and the values that the derivative needs."""
    x, h = (part.chunk(3, 1) for part in _gates(input_gates, hidden_gates, input_bias, hidden_bias))
    reset, update = (x[0] + h[0]).sigmoid(), (x[1] + h[1]).sigmoid()
    new = tanh(x[2] + reset * h[2])
    hidden = new + update * (hx - new)
    return hidden.to(hx.dtype), stack((reset, update, new, hx.to(new.dtype), h[2])).to(hx.dtype)


def _gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the derivatives by the gates of the input and of the state, by the state, and by both biases."""
    reset, update, new, hx, of_state = workspace.unbind()
    by_new = grad_hy * (1 - update) * (1 - new * new)
    by_reset = by_new * of_state * reset * (1 - reset)
    by_update = grad_hy * (hx - new) * update * (1 - update)
    by_input, by_state = cat((by_reset, by_update, by_new), 1), cat((by_reset, by_update, by_new * reset), 1)
    none = by_input.new_empty(0)
    biases = (by_input.sum(0), by_state.sum(0)) if has_bias else (none, none)
    return by_input, by_state, grad_hy * update, *biases


def _no(*_: object) -> bool:
    """Answer that cuDNN is not used, so that torch uses its own implementation."""
    return False


KERNELS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    **dict.fromkeys(("_scaled_mm", "_scaled_mm.out"), scaled_mm),
    "_scaled_grouped_mm_v2": scaled_grouped_mm,
    **{f"_use_{library}_ctc_loss{overload}": _no for library in ("cudnn", "miopen") for overload in ("", ".Tensor")},
}
