"""Normalisation of rows as an operation of PyTorch, and its gradients: below `rms_norm` and `layer_norm`.

Rows are those of the last extent. Results that are not asked for have no elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from cutepy.host.launches import Launches, OptionalTensor, described, maker_of
from cutepy.kernels.rows.compilation import as_rows
from cutepy.kernels.rows.norm_plans import plan_norm, plan_norm_backward
from cutepy.kernels.rows.tiling import MOST_COLUMNS
from cutepy.ops import shardings
from cutepy.ops.checking import check_dense
from cutepy.ops.registration import one_by_one, register_both
from cutepy.ops.row_tensors import to_rows, to_vector
from cutepy.ops.schemas import schema_of
from cutepy.runtime.execution import EXECUTION

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

_launches: Launches[Callable[..., Results]] = Launches()
_backward_launches: Launches[Callable[..., Gradients]] = Launches()


def check_shapes(
    of_vectors: Sequence[int],
    of_rows: Sequence[int],
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
) -> None:
    """Check the shapes of the operands beside an input, whose last extents are those of a vector.

    Raises
    ------
    ValueError
        If they are others.
    """
    for name, tensor, shape in (
        ("residual", residual, of_rows),
        ("weight", weight, of_vectors),
        ("bias", bias, of_vectors),
    ):
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} of a norm must have shape {tuple(shape)}, got {tuple(tensor.shape)}")


def check(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    out_dtype: torch.dtype | None,
) -> None:
    """Check shapes, dtypes and devices.

    Raises
    ------
    TypeError, ValueError
        If they are others.
    """
    check_dense("input", x)
    if not x.dim():
        raise ValueError("the input of a norm must have rows, got a tensor without dimensions; give it one")
    check_shapes(x.shape[-1:], x.shape, residual, weight, bias)
    for name, tensor in (("input", x), ("residual", residual), ("weight", weight), ("bias", bias)):
        if tensor is None:
            continue
        check_dense(name, tensor)
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{name} of a norm must be float16, bfloat16 or float32, got {tensor.dtype}; convert it")
        if tensor.device != x.device:
            raise ValueError(f"tensors of a norm must be on one device, got {name} on {tensor.device}, not {x.device}")
    if out_dtype is not None and out_dtype not in DTYPES:
        raise TypeError(f"out_dtype of a norm must be float16, bfloat16 or float32, got {out_dtype}")
    if x.shape[-1] > MOST_COLUMNS:
        raise ValueError(f"norms are of {MOST_COLUMNS} elements at most, got {x.shape[-1]}; part them")


def rows_of(tensor: OptionalTensor) -> OptionalTensor:
    """View a tensor as rows, if it is given."""
    return None if tensor is None else as_rows(tensor)


def vector_of(tensor: OptionalTensor) -> OptionalTensor:
    """Make the elements of a tensor (columns,) contiguous, if it is given."""
    return None if tensor is None else tensor.contiguous()


def empty_total(x: torch.Tensor, residual: OptionalTensor) -> torch.Tensor:
    """Make the empty sum of x and a residual, of the dtype that torch adds them in."""
    if residual is None:
        return x.new_empty(0)
    return x.new_empty(x.shape, dtype=torch.promote_types(x.dtype, residual.dtype))


def _empty(x: torch.Tensor, residual: OptionalTensor, centres: bool, out_dtype: torch.dtype | None) -> Results:
    """Make empty results: the norm, the sum, 1 / sqrt(...) and the mean of each row."""
    rows = x.shape[:-1]
    return (
        x.new_empty(x.shape, dtype=out_dtype or x.dtype),
        empty_total(x, residual),
        x.new_empty(rows, dtype=torch.float32),
        x.new_empty(rows if centres else 0, dtype=torch.float32),
    )


def _fake(*given: Any) -> Results:  # noqa: ANN401
    x, residual, weight, bias, _, centres, out_dtype = given
    check(x, residual, weight, bias, out_dtype)
    return _empty(x, residual, centres, out_dtype)


def normalised(
    x: torch.Tensor, residual: OptionalTensor, weight: OptionalTensor, bias: OptionalTensor, eps: float, centres: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute a norm in plain torch, in fp32: it, the sum, 1 / sqrt(...), and the means of rows."""
    wide = x.float() if residual is None else x.float() + residual.float()
    total = x.new_empty(0) if residual is None else wide.to(empty_total(x, residual).dtype).contiguous()
    means = wide.mean(-1) if centres else wide.new_empty(0)
    centred = wide - means[..., None] if centres else wide
    factors = torch.rsqrt(centred.square().mean(-1) + eps)
    y = centred * factors[..., None]
    y = y if weight is None else y * weight.float()
    y = y if bias is None else y + bias.float()
    return y, total, factors, means


def _reference(*given: Any) -> Results:  # noqa: ANN401
    x, residual, weight, bias, eps, centres, out_dtype = given
    check(x, residual, weight, bias, out_dtype)
    y, total, factors, means = normalised(x, residual, weight, bias, eps, centres)
    return y.to(out_dtype or x.dtype).contiguous(), total, factors.contiguous(), means.contiguous()


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)
    x, residual, weight, bias, _, ctx.centres, _ = inputs
    _, total, factors, means = output
    ctx.dtypes = x.dtype, None if residual is None else residual.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(x if residual is None else total, weight, factors, means)
    ctx.mark_non_differentiable(factors, means)


def _backward(ctx: Any, dy: OptionalTensor, dtotal: OptionalTensor, *_: object) -> tuple[Any, ...]:  # noqa: ANN401
    x, weight, factors, means = ctx.saved_tensors
    needs_x, needs_residual, needs_weight, needs_bias = ctx.needs_input_grad[:4]
    of_x, of_residual, of_bias = ctx.dtypes
    dy = torch.zeros_like(x) if dy is None else dy
    dtotal = None if of_residual is None else dtotal
    sums = needs_weight, of_bias if needs_bias else None
    dx, dweight, dbias = _norm_backward(dy, dtotal, x, weight, factors, means, ctx.centres, *sums)
    return (
        dx.to(of_x) if needs_x else None,
        dx.to(of_residual) if needs_residual else None,
        dweight if needs_weight else None,
        dbias if needs_bias else None,
        None,
        None,
        None,
    )


def of_examples(tensor: OptionalTensor, dim: int | None, count: int) -> OptionalTensor:
    """Give the rows of all examples of `torch.vmap`, the examples first."""
    if tensor is None:
        return None
    return tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Make the rows of all examples one tensor's: one launch. One by one where each has a weight or bias of its own."""
    if in_dims[2] is not None or in_dims[3] is not None:
        return one_by_one(norm)(info, in_dims, *arguments)  # type: ignore[no-any-return]
    x, residual = (of_examples(arguments[n], in_dims[n], info.batch_size) for n in (0, 1))
    results = norm(x, residual, *arguments[2:])  # type: ignore[arg-type]
    return results, (0, None if residual is None else 0, 0, 0 if arguments[5] else None)


@register_both(
    "cutepy::norm",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    vmap=_vmap,
    sharding=shardings.of_norm,
    is_invariant=True,
)
def norm(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    eps: float,
    centres: bool,
    out_dtype: torch.dtype | None,
) -> Results:
    """Normalise rows: x, residual (..., columns), weight, bias (columns,), of any strides.

    Returns
    -------
    Tensor, Tensor, Tensor, Tensor
        The norm and the sum x + residual (..., columns); 1 / sqrt(...) and the mean of each row (...), float32.
    """
    key = (centres, out_dtype, EXECUTION.backend is None, *described(x, residual, weight, bias))
    launch = _launches.get(key)
    if launch is None:
        check(x, residual, weight, bias, out_dtype)
        launch = _launches.keep(key, _find_launch(x, residual, weight, bias, centres, out_dtype))
    return launch(x, residual, weight, bias, eps)


def _find_launch(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    centres: bool,
    out_dtype: torch.dtype | None,
) -> Callable[..., Results]:
    """Plan the launch for tensors of this description, and compile the kernel."""
    results = _empty(x, residual, centres, out_dtype)
    if not x.numel():
        return lambda x, residual, *_: _empty(x, residual, centres, out_dtype)
    y, total, factors, means = results
    make_y, make_total, make_factors, make_means = (maker_of(x, each.shape, each.dtype) for each in results)
    has_total = residual is not None
    to_x, to_residual, to_y = map(to_rows, (x, residual, y))
    to_weight, to_bias, to_factors = map(to_vector, (weight, bias, factors))
    to_total, to_means = to_rows(total if has_total else None), to_vector(means)
    seen = to_x(x), to_residual(residual), to_weight(weight), to_bias(bias), to_y(y)
    function = plan_norm(*seen, to_total(total) if has_total else None, centres=centres)

    def run(
        x: torch.Tensor, residual: OptionalTensor, weight: OptionalTensor, bias: OptionalTensor, eps: float
    ) -> Results:
        y, total, factors, means = results = make_y(), make_total(), make_factors(), make_means()
        function(
            to_x(x),
            to_residual(residual),
            to_weight(weight),
            to_bias(bias),
            to_y(y),
            to_total(total) if has_total else None,
            to_factors(factors),
            to_means(means) if centres else None,
            None,
            None,
            None,
            eps,
        )
        return results

    return run


class Backward(NamedTuple):
    """Arguments of `cutepy::norm_backward`, in the order of its schema.

    Attributes
    ----------
    dy, dtotal, x : Tensor (..., columns)
        Gradients of the norm and of the sum, which may be None, and the normalised input.
    weight : Tensor (columns,), or None
    factors, means : Tensor (...)
        As of `norm`.
    centres, needs_weight : bool
    of_bias : dtype or None
        Of the gradient of the bias, if there is one.
    """

    dy: torch.Tensor
    dtotal: torch.Tensor | None
    x: torch.Tensor
    weight: torch.Tensor | None
    factors: torch.Tensor
    means: torch.Tensor
    centres: bool
    needs_weight: bool
    of_bias: torch.dtype | None

    def empty(self) -> Gradients:
        """Make empty gradients."""
        x, weight, columns = self.x, self.weight, self.x.shape[-1]
        return (
            x.new_empty(x.shape),
            x.new_empty(columns if self.needs_weight else 0, dtype=x.dtype if weight is None else weight.dtype),
            x.new_empty(0 if self.of_bias is None else columns, dtype=self.of_bias or x.dtype),
        )


def _reference_backward(*given: Any) -> Gradients:  # noqa: ANN401
    asked = Backward(*given)
    dx, dweight, dbias = asked.empty()
    columns, wide, grad = asked.x.shape[-1], asked.x.float(), asked.dy.float()
    factors = asked.factors[..., None]
    normal = (wide - asked.means[..., None] if asked.centres else wide) * factors
    if asked.needs_weight:
        dweight = (grad * normal).reshape(-1, columns).sum(0).to(dweight.dtype)
    if asked.of_bias is not None:
        dbias = grad.reshape(-1, columns).sum(0).to(asked.of_bias)
    grad = grad if asked.weight is None else grad * asked.weight.float()
    along = (grad * normal).mean(-1, keepdim=True)
    grad = grad - grad.mean(-1, keepdim=True) if asked.centres else grad
    grad = (grad - normal * along) * factors
    grad = grad if asked.dtotal is None else grad + asked.dtotal.float()
    return grad.to(dx.dtype).contiguous(), dweight, dbias


def _vmap_backward(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Make the rows of all examples one tensor's, as `_vmap`; one by one where each has sums of its own."""
    *_, centres, needs_weight, of_bias = arguments
    if in_dims[3] is not None or needs_weight or of_bias is not None:
        return one_by_one(_norm_backward)(info, in_dims, *arguments)  # type: ignore[no-any-return]
    given = list(arguments)
    for n in (0, 1, 2, 4, 5) if centres else (0, 1, 2, 4):
        given[n] = of_examples(given[n], in_dims[n], info.batch_size)
    return _norm_backward(*given), (0, None, None)


@register_both(
    f"cutepy::norm_backward({schema_of(Backward)}) -> (Tensor, Tensor, Tensor)",
    reference=_reference_backward,
    fake=lambda *given: Backward(*given).empty(),
    vmap=_vmap_backward,
    sharding=shardings.of_norm_backward,
    is_invariant=True,
)
def _norm_backward(*given: Any) -> Gradients:  # noqa: ANN401
    key = (*given[6:], EXECUTION.backend is None, *described(*given[:6]))
    launch = _backward_launches.get(key)
    if launch is None:
        launch = _backward_launches.keep(key, _find_backward_launch(Backward(*given)))
    return launch(*given)


def _find_backward_launch(like: Backward) -> Callable[..., Gradients]:
    """Plan the launch for gradients of tensors of this description, and compile the kernels."""
    if not like.x.numel():

        def zeros(*given: Any) -> Gradients:  # noqa: ANN401
            dx, dweight, dbias = Backward(*given).empty()
            return dx, dweight.zero_(), dbias.zero_()

        return zeros

    results = like.empty()
    dx, dweight, dbias = results
    make_dx, make_dweight, make_dbias = (maker_of(like.x, each.shape, each.dtype) for each in results)
    to_dy, to_dtotal, to_x, to_dx = map(to_rows, (like.dy, like.dtotal, like.x, dx))
    to_weight, to_factors, to_means = map(to_vector, (like.weight, like.factors, like.means))
    sums, of_bias, centres = like.needs_weight, like.of_bias is not None, like.centres
    seen = to_dy(like.dy), to_dtotal(like.dtotal), to_x(like.x), to_weight(like.weight)
    made = to_dx(dx), dweight if sums else None, dbias if of_bias else None
    function = plan_norm_backward(*seen, *made, centres=centres)

    def run(
        dy: torch.Tensor,
        dtotal: OptionalTensor,
        x: torch.Tensor,
        weight: OptionalTensor,
        factors: torch.Tensor,
        means: torch.Tensor,
        *_: object,
    ) -> Gradients:
        dx, dweight, dbias = results = make_dx(), make_dweight(), make_dbias()
        function(
            to_dy(dy),
            to_dtotal(dtotal),
            to_x(x),
            to_weight(weight),
            to_factors(factors),
            to_means(means) if centres else None,
            to_dx(dx),
            dweight if sums else None,
            dbias if of_bias else None,
        )
        return results

    return run
