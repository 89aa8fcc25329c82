"""Cross entropy as an operation of PyTorch: `cross_entropy`, and its gradient, which may take the logits' place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from cutepy.host.launches import Launches, OptionalTensor, described, maker_of
from cutepy.kernels.rows.plans import plan_cross_entropy, plan_cross_entropy_backward, plan_mean
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor, overlaps_itself
from cutepy.ops.registration import register_both
from cutepy.ops.row_tensors import check_row_tensors, to_vector, widened_by_autocast
from cutepy.runtime.execution import EXECUTION

Options = tuple[int, float, float]
"""ignore_index, label_smoothing, z_loss."""
LABELS = (torch.int64, torch.int32)

Launch = Callable[..., None]

_plans: Launches[_Losses] = Launches()
_launches: Launches[Launch] = Launches()
_means_launched: Launches[Callable[..., tuple[torch.Tensor, torch.Tensor]]] = Launches()


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    inplace_backward: bool = False,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Compute the cross entropy of logits and labels: `torch.nn.functional.cross_entropy`, and more.

    Parameters
    ----------
    input : Tensor (classes,), (rows, classes) or (rows, classes, ...)
        Logits: float16, bfloat16 or float32, 1 to 262,144 classes. Classes that are not contiguous are copied.
    target : Tensor, (), (rows,) or (rows, ...), int64 or int32
        Labels. One that is no class, nor `ignore_index`, makes the loss and the gradient of its row NaN.
    weight : Tensor (classes,), optional
        Factor of each class.
    ignore_index : int
        The label of rows that don't count: their losses and gradients are 0, whatever their logits are.
    reduction : "mean", "sum" or "none"
        The mean is over the rows that count, by the weights of their labels: NaN if there are none.
    label_smoothing : float
        From 0 to 1: that part of each label is spread over all classes.
    z_loss : float
        Factor of the square of the logarithm of the sum of exponentials, which is added to the loss of each row.
    inplace_backward : bool
        True to have the gradient overwrite the logits, so that it takes no memory: nothing may read the logits
        afterwards, and a second backward pass is refused. It is ignored in compiled programs, which plan their memory,
        and of logits that share memory with each other, as expanded ones do.
    out_dtype : dtype, optional
        Of the result: that of the input if not given, but float32 within `torch.autocast`, as torch's.

    Returns
    -------
    Tensor, () or as the target
        Differentiable with respect to the input. All is computed in fp32.

    Raises
    ------
    TypeError, ValueError
        If dtypes, shapes or options are others.

    Examples
    --------
    >>> import torch
    >>> cross_entropy(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), torch.tensor([1, -100]))
    tensor(0.6931)
    """
    check_options(reduction, ignore_index, label_smoothing, z_loss)
    if as_tensor("input", input).dim() == 0:
        raise ValueError("input must be (classes,), (rows, classes) or (rows, classes, ...), got shape ()")
    shape = (*input.shape[:1], *input.shape[2:]) if input.dim() > 1 else ()
    if as_tensor("target", target).shape != shape:
        raise ValueError(f"target must have shape {tuple(shape)}, got {tuple(target.shape)}; it has labels, not scores")
    classes = input.shape[1 if input.dim() > 1 else 0]
    logits, labels = input, target
    if input.dim() != 2:
        logits = (input.movedim(1, -1) if input.dim() > 2 else input).reshape(-1, classes)
        labels = target.reshape(-1)
    if logits.stride(-1) != 1:
        logits = logits.contiguous()
    inplace = inplace_backward and not torch.compiler.is_compiling() and not overlaps_itself(logits)
    losses, _ = _cross_entropy(logits, labels, weight, ignore_index, label_smoothing, z_loss, inplace)
    dtype = out_dtype or dtype_of_losses(input)
    if reduction == "none":
        return losses.to(dtype).reshape(shape)
    return _mean(losses, labels, weight, classes, ignore_index, reduction == "mean", dtype)[0]


def dtype_of_losses(x: torch.Tensor) -> torch.dtype:
    """Return the dtype in which torch gives losses of logits, or of what they are computed from."""
    return torch.float32 if widened_by_autocast(x, "cuda", "cpu") else x.dtype


def check_options(reduction: str, ignore_index: int, label_smoothing: float, z_loss: float) -> None:
    """Check the options of a cross entropy.

    Raises
    ------
    ValueError
        If one has no such value.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction must be "mean", "sum" or "none", got {reduction!r}')
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be from 0 to 1, got {label_smoothing}")
    if not z_loss >= 0:
        raise ValueError(f"z_loss must be 0 or more, got {z_loss}")
    if not -(2**31) <= ignore_index < 2**31:
        raise ValueError(f"ignore_index must fit 32 bits, got {ignore_index}; give rows that don't count another label")


def counted(labels: torch.Tensor, weight: OptionalTensor, ignore_index: int, classes: int) -> torch.Tensor:
    """Return the summand of each row in the divisor of a mean: 0 or 1, or the weight of its label."""
    counts = labels != ignore_index
    if weight is None:
        return counts
    counts = counts & (labels >= 0) & (labels < classes)
    return weight.float()[torch.where(counts, labels, 0)] * counts


def _check(logits: torch.Tensor, target: torch.Tensor, weight: OptionalTensor) -> None:
    check_row_tensors("cross_entropy", input=logits, weight=weight)
    if target.dtype not in LABELS:
        raise TypeError(f"target must be int64 or int32, got {target.dtype}; probabilities are not taken")
    if target.device != logits.device:
        raise ValueError(f"target must be on input's device {logits.device}, got {target.device}; move it")
    if weight is not None and weight.shape != logits.shape[1:]:
        raise ValueError(f"weight must have shape {tuple(logits.shape[1:])}, got {tuple(weight.shape)}")
    if not logits.shape[1]:
        raise ValueError("input must have at least one class, got none")


def _fake(
    logits: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, *_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(logits, target, weight)
    return logits.new_empty(target.shape, dtype=torch.float32), logits.new_empty(target.shape, dtype=torch.float32)


def _labels(logits: torch.Tensor, target: torch.Tensor, ignore_index: int) -> tuple[torch.Tensor, ...]:
    """Give labels as indices, which rows count, and which of these have a label that is a class."""
    counts = target != ignore_index
    inside = counts & (target >= 0) & (target < logits.shape[1])
    return torch.where(inside, target, 0).long()[:, None], counts, inside


def reference_losses(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    inplace: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute losses, and logarithms of sums of exponentials, in plain torch."""
    _check(logits, target, weight)
    index, counts, inside = _labels(logits, target, ignore_index)
    wide = logits.float()
    largest = wide.amax(1, keepdim=True)
    lse = largest + (wide - largest).exp().sum(1, keepdim=True).log()
    factors = wide.new_ones(logits.shape[1]) if weight is None else weight.float()
    loss = factors[index] * (lse - wide.gather(1, index))
    if label_smoothing:
        spread = (lse * factors.sum() - (wide * factors).sum(1, keepdim=True)) / logits.shape[1]
        loss = (1 - label_smoothing) * loss + label_smoothing * spread
    if z_loss:
        loss = loss + z_loss * lse.square()
    loss = loss[:, 0].masked_fill(~inside, torch.nan).masked_fill(~counts, 0.0)
    return loss, lse[:, 0].contiguous()


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)  # of the logarithms: zeros would take a launch
    logits, target, weight, *ctx.options, ctx.inplace = inputs
    ctx.save_for_backward(logits, target, weight, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, dloss: OptionalTensor, _: object) -> tuple[Any, ...]:  # noqa: ANN401
    if dloss is None:
        return (None,) * 7
    logits, target, weight, lse = ctx.saved_tensors
    if ctx.inplace:
        dlogits = logits.detach()
        _cross_entropy_backward_(dloss, dlogits, target, weight, lse, *ctx.options)
    else:
        dlogits = _cross_entropy_backward(dloss, logits, target, weight, lse, *ctx.options)
    return dlogits, None, None, None, None, None, None


@register_both(
    "cutepy::cross_entropy",
    reference=reference_losses,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    sharding=shardings.of_cross_entropy,
    is_invariant=True,
)
def _cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    inplace: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    plan = _plan_of(logits, target, weight, label_smoothing, z_loss)
    losses, lse = plan.make(), plan.make()
    plan.launch(logits, target, weight, losses, lse, ignore_index, label_smoothing, z_loss)
    return losses, lse


class _Losses(NamedTuple):
    """All that is decided for logits, labels and weights alike.

    Attributes
    ----------
    make : callable
        Makes an empty float32 number for each row.
    launch : callable
        (logits, target, weight, losses, lse, ignore_index, label_smoothing, z_loss)
    """

    make: Callable[[], torch.Tensor]
    launch: Launch


def _plan_of(
    logits: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, label_smoothing: float, z_loss: float
) -> _Losses:
    smooths, adds_z = label_smoothing != 0, z_loss != 0
    key = smooths, adds_z, EXECUTION.backend is None, *described(logits, target, weight)
    return _plans.get(key) or _plans.keep(key, _find_plan(logits, target, weight, smooths=smooths, adds_z=adds_z))


def _find_plan(
    logits: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, *, smooths: bool, adds_z: bool
) -> _Losses:
    _check(logits, target, weight)
    make = maker_of(logits, target.shape, torch.float32)
    if not target.numel():
        return _Losses(make, lambda *_: None)
    to_target, to_weight = map(to_vector, (target, weight))
    function = plan_cross_entropy(logits, to_target(target), to_weight(weight), make(), smooths=smooths, adds_z=adds_z)

    def launch(logits: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, *rest: Any) -> None:  # noqa: ANN401
        function(logits, to_target(target), to_weight(weight), *rest)

    return _Losses(make, launch)


def compute_losses(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    options: Options,
    losses: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Launch what writes the loss of each row, and the logarithm of its sum of exponentials."""
    _plan_of(logits, target, weight, *options[1:]).launch(logits, target, weight, losses, lse, *options)


def _mean_by_torch(
    losses: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    classes: int,
    ignore_index: int,
    divides: bool,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the sum of losses, or their mean, and its divisor, (1,) or empty, in plain torch."""
    if not divides:
        return losses.sum().to(dtype), losses.new_empty(0)
    divisor = counted(target, weight, ignore_index, classes).sum().to(torch.float32).reshape(1)
    return (losses.sum() / divisor[0]).to(dtype), divisor


def _fake_mean(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    losses, *_, divides, dtype = given
    return losses.new_empty((), dtype=dtype), losses.new_empty(int(divides))


def _keep_mean(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)  # of the divisor
    ctx.rows, ctx.divides = inputs[0].shape, inputs[5]
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _backward_of_mean(ctx: Any, dtotal: OptionalTensor, _: object) -> tuple[Any, ...]:  # noqa: ANN401
    if dtotal is None:
        return (None,) * 7
    (divisor,) = ctx.saved_tensors
    dlosses = dtotal.expand(ctx.rows)
    return (dlosses / divisor if ctx.divides else dlosses.float(), *[None] * 6)


@register_both(
    "cutepy::mean_of_losses",
    reference=_mean_by_torch,
    fake=_fake_mean,
    setup_context=_keep_mean,
    backward=_backward_of_mean,
    sharding=shardings.of_mean_of_losses,
    is_invariant=True,
)
def _mean(
    losses: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    classes: int,
    ignore_index: int,
    divides: bool,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    key = divides, dtype, EXECUTION.backend is None, *described(losses, target, weight)
    launch = _means_launched.get(key) or _means_launched.keep(key, _find_mean(losses, target, weight, divides, dtype))
    return launch(losses, target, weight, classes, ignore_index)


def _find_mean(
    losses: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, divides: bool, dtype: torch.dtype
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Plan the launch for losses of this description, and compile the kernel."""
    if not losses.numel():
        return partial(_mean_by_torch, divides=divides, dtype=dtype)
    make_total, make_divisor = maker_of(losses, (), dtype), maker_of(losses, (int(divides),))
    to_losses, to_target, to_weight = map(to_vector, (losses, target, weight))
    to_total = to_vector(make_total())
    seen = to_losses(losses), to_target(target), to_weight(weight), to_total(make_total())
    function = plan_mean(*seen, divides=divides)

    def run(
        losses: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, *numbers: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total, divisor = make_total(), make_divisor()
        given = to_losses(losses), to_target(target), to_weight(weight), to_total(total)
        function(*given, divisor if divides else None, *numbers)
        return total, divisor

    return run


def _empty_gradient(dloss: torch.Tensor, logits: torch.Tensor, *_: object) -> torch.Tensor:
    return logits.new_empty(logits.shape)


def reference_gradient(
    dloss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    lse: torch.Tensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """Compute the gradient of the logits in plain torch."""
    index, counts, inside = _labels(logits, target, ignore_index)
    lse = lse[:, None]
    factors = lse.new_ones(logits.shape[1]) if weight is None else weight.float()
    of_label = (1 - label_smoothing) * factors[index]
    smooth = label_smoothing / logits.shape[1] * factors
    of_sum = of_label + smooth.sum() + (2 * z_loss * lse if z_loss else 0)
    grad = (logits.float() - lse).exp() * of_sum
    grad = (grad - smooth).scatter_add(1, index, -of_label) * dloss[:, None]
    grad = grad.masked_fill(~inside[:, None], torch.nan).masked_fill(~counts[:, None], 0.0)
    return grad.to(logits.dtype).contiguous()


def write_gradient(
    dloss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    lse: torch.Tensor,
    options: Options,
    dlogits: torch.Tensor,
) -> None:
    """Launch what writes the gradient to `dlogits`, which may be the logits."""
    smooths, adds_z = options[1] != 0, options[2] != 0
    given = dloss, logits, target, weight, lse, dlogits
    key = smooths, adds_z, EXECUTION.backend is None, *described(*given)
    launch = _launches.get(key)
    if launch is None:
        launch = _launches.keep(key, _find_gradient(*given, smooths=smooths, adds_z=adds_z))
    launch(*given, *options)


def _find_gradient(
    dloss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    lse: torch.Tensor,
    dlogits: torch.Tensor,
    *,
    smooths: bool,
    adds_z: bool,
) -> Launch:
    """Plan the launch for gradients of tensors of this description, and compile the kernel."""
    if not target.numel():
        return lambda *_: None
    to_dloss, to_target, to_weight, to_lse = map(to_vector, (dloss, target, weight, lse))
    seen = to_dloss(dloss), logits, to_target(target), to_weight(weight), dlogits
    function = plan_cross_entropy_backward(*seen, smooths=smooths, adds_z=adds_z)

    def launch(
        dloss: torch.Tensor,
        logits: torch.Tensor,
        target: torch.Tensor,
        weight: OptionalTensor,
        lse: torch.Tensor,
        *rest: Any,  # noqa: ANN401
    ) -> None:
        function(to_dloss(dloss), logits, to_target(target), to_weight(weight), to_lse(lse), *rest)

    return launch


_TAKES = "Tensor target, Tensor? weight, Tensor lse, int ignore_index, float label_smoothing, float z_loss"


@register_both(
    f"cutepy::cross_entropy_backward(Tensor dloss, Tensor logits, {_TAKES}) -> Tensor",
    reference=reference_gradient,
    fake=_empty_gradient,
    sharding=shardings.of_cross_entropy_backward,
    is_invariant=True,
)
def _cross_entropy_backward(dloss: torch.Tensor, logits: torch.Tensor, *rest: Any) -> torch.Tensor:  # noqa: ANN401
    dlogits, (target, weight, lse) = _empty_gradient(dloss, logits), rest[:3]
    write_gradient(dloss, logits, target, weight, lse, rest[3:], dlogits)
    return dlogits


def _overwrite(dloss: torch.Tensor, logits: torch.Tensor, *rest: Any) -> None:  # noqa: ANN401
    logits.copy_(reference_gradient(dloss, logits, *rest))


@register_both(
    f"cutepy::cross_entropy_backward_(Tensor dloss, Tensor(a!) logits, {_TAKES}) -> ()",
    reference=_overwrite,
    fake=lambda *_: None,
    sharding=shardings.of_cross_entropy_backward_,
    is_invariant=True,
)
def _cross_entropy_backward_(dloss: torch.Tensor, logits: torch.Tensor, *rest: Any) -> None:  # noqa: ANN401
    target, weight, lse = rest[:3]
    write_gradient(dloss, logits, target, weight, lse, rest[3:], logits)
