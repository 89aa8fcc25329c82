"""Rotary embedding as an operation of PyTorch: `rotary`, whose gradient is the inverse rotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cutepy.host.launches import Launches, OptionalTensor, described, maker_of
from cutepy.kernels.rows.plans import plan_rotary
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor
from cutepy.ops.registration import register_both
from cutepy.ops.row_tensors import check_row_tensors
from cutepy.runtime.execution import EXECUTION

POSITIONS = (torch.int64, torch.int32)
MOST_HEAD = 1024

_launches: Launches[Callable[..., torch.Tensor]] = Launches()


def rotary(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | int | None = None,
    interleaved: bool = False,
    inverse: bool = False,
) -> torch.Tensor:
    """Rotate pairs of each head's columns by the angles of its token's position.

    A pair (x1, x2) becomes (x1 cos - x2 sin, x2 cos + x1 sin). Columns behind the rotated ones stay as they are.

    Parameters
    ----------
    x : Tensor (batch, tokens, heads, head)
        float16, bfloat16 or float32, of any strides, 1 to 1,024 columns; heads that are not contiguous are copied.
    cos, sin : Tensor (rows, width)
        float16, bfloat16 or float32, a row for each position; 2 `width` columns are rotated, at most `head`.
    positions : int, or Tensor (batch, tokens) or (tokens,), int64 or int32, optional
        Of tokens; or of the first token, the others following: 0 if not given. Heads of a position of a tensor that the
        tables don't have become NaN, where they are rotated.
    interleaved : bool
        True if pairs are neighbours, (0, 1), (2, 3), as in GPT-J; else columns n and n + width, as in Llama.
    inverse : bool
        True to rotate by the negative angles.

    Returns
    -------
    Tensor, as x
        Contiguous. Differentiable with respect to x; the angles are constants. All is computed in fp32.

    Raises
    ------
    TypeError, ValueError
        If dtypes or shapes are others, or the tables end before an offset and the tokens do.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    >>> cos, sin = torch.zeros(1, 2), torch.ones(1, 2)
    >>> rotary(x, cos, sin).flatten(), rotary(x, cos, sin, interleaved=True).flatten()
    (tensor([-3., -4.,  1.,  2.]), tensor([-2.,  1., -4.,  3.]))
    """
    if as_tensor("x", x).dim() != 4:
        raise ValueError(f"x must be (batch, tokens, heads, head), got shape {tuple(x.shape)}")
    if as_tensor("cos", cos).requires_grad or as_tensor("sin", sin).requires_grad:
        raise ValueError("cos and sin must not require grad, since they get none; pass them detached")
    offset = 0
    if isinstance(positions, torch.Tensor):
        if positions.shape == x.shape[1:2]:
            positions = positions.expand(x.shape[:2])
        if positions.shape != x.shape[:2]:
            raise ValueError(
                f"positions must be (batch, tokens) = {tuple(x.shape[:2])}, or (tokens,), got {tuple(positions.shape)}"
            )
    else:
        offset, positions = positions or 0, None
        if offset < 0 or offset + x.shape[1] > cos.shape[0]:
            raise ValueError(
                f"cos and sin must have a row for each position {offset} to {offset + x.shape[1] - 1}, got "
                f"{cos.shape[0]}; compute more"
            )
    return _rotary(x, cos, sin, positions, offset, interleaved, inverse)


def check_angles(name: str, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Check the width of a tensor's heads, and the shapes of tables of angles.

    Raises
    ------
    ValueError
        If heads are too wide, or the tables have no row or no place in a head.
    """
    head = x.shape[3]
    if head > MOST_HEAD:
        raise ValueError(f"{name} must have heads of {MOST_HEAD} columns at most, got {head}")
    if cos.dim() != 2 or cos.shape != sin.shape or not cos.shape[0] or not 1 <= cos.shape[1] <= head // 2:
        raise ValueError(
            f"cos and sin must be (rows, width), a row at least and a width from 1 to {head // 2}, half of a head, got "
            f"{tuple(cos.shape)} and {tuple(sin.shape)}"
        )


def _check(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: OptionalTensor,
    offset: int,
    interleaved: bool,
    inverse: bool,
) -> torch.Tensor:
    """Check an embedding's arguments, and make an empty result."""
    check_row_tensors("rotary", x=x, cos=cos, sin=sin)
    check_angles("x", x, cos, sin)
    if positions is not None and (positions.dtype not in POSITIONS or positions.device != x.device):
        raise TypeError(
            f"positions must be int64 or int32 on x's device {x.device}, got {positions.dtype} on {positions.device}"
        )
    return x.new_empty(x.shape)


def _reference(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: OptionalTensor,
    offset: int,
    interleaved: bool,
    inverse: bool,
) -> torch.Tensor:
    _check(x, cos, sin, positions, offset, interleaved, inverse)
    rows, width = cos.shape
    if positions is None:
        positions = torch.arange(offset, offset + x.shape[1], device=x.device)[None]
    within = (positions >= 0) & (positions < rows)
    index = torch.where(within, positions, 0).long()
    c, s = (table.float()[index][:, :, None] for table in (cos, sin))
    c, s = c.masked_fill(~within[:, :, None, None], torch.nan), -s if inverse else s
    wide = x[..., : 2 * width].float()
    halves = wide.unflatten(-1, (width, 2) if interleaved else (2, width))
    x1, x2 = halves.unbind(-1 if interleaved else -2)
    turned = torch.stack((x1 * c - x2 * s, x2 * c + x1 * s), -1 if interleaved else -2).flatten(-2)
    return torch.cat((turned.to(x.dtype), x[..., 2 * width :]), -1).contiguous()


def _keep(ctx: Any, inputs: Sequence[Any], output: torch.Tensor) -> None:  # noqa: ANN401
    _, cos, sin, positions, *ctx.options = inputs
    ctx.save_for_backward(cos, sin, positions)


def _backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:  # noqa: ANN401
    cos, sin, positions = ctx.saved_tensors
    offset, interleaved, inverse = ctx.options
    return _rotary(dy, cos, sin, positions, offset, interleaved, not inverse), *[None] * 6


@register_both(
    "cutepy::rotary",
    reference=_reference,
    fake=_check,
    setup_context=_keep,
    backward=_backward,
    sharding=shardings.of_rotary,
    is_invariant=True,
)
def _rotary(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: OptionalTensor,
    offset: int,
    interleaved: bool,
    inverse: bool,
) -> torch.Tensor:
    key = (interleaved, EXECUTION.backend is None, *described(x, cos, sin, positions))
    launch = _launches.get(key)
    if launch is None:
        y = _check(x, cos, sin, positions, offset, interleaved, inverse)
        launch = _launches.keep(key, _find_launch(x, cos, sin, positions, y, interleaved))
    return launch(x, cos, sin, positions, offset, -1.0 if inverse else 1.0)


def _find_launch(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: OptionalTensor, y: torch.Tensor, interleaved: bool
) -> Callable[..., torch.Tensor]:
    """Plan the launch for tensors of this description, and compile the kernel."""
    make = maker_of(x, y.shape)
    if not x.numel():
        return lambda *_: make()
    is_whole = all(each.stride(-1) == 1 for each in (x, cos, sin))

    def whole(tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor whose rows are not contiguous."""
        return tensor if tensor.stride(-1) == 1 else tensor.clone(memory_format=torch.contiguous_format)

    function = plan_rotary(whole(x), whole(cos), whole(sin), positions, y, interleaved=interleaved)

    def run(
        x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: OptionalTensor, offset: int, sign: float
    ) -> torch.Tensor:
        y = make()
        if not is_whole:
            x, cos, sin = whole(x), whole(cos), whole(sin)
        function(x, cos, sin, positions, y, offset, sign)
        return y

    return run
