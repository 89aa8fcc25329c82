"""Argument checks of products: names, types, extents, devices, precision, and memory that results share.

Each refusal names the argument, and says what it must be.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import combinations
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch

from cutepy.device import rules
from cutepy.epilogues.errors import EpilogueError
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph, Result
from cutepy.epilogues.reference import broadcasts, check_operand, same_shape
from cutepy.epilogues.tracing import Epilogue
from cutepy.kernels.gemm.elements import multipliable
from cutepy.kernels.gemm.operands import (
    INTEGER_DTYPES,
    OPERAND_DTYPES,
    OUTPUT_DTYPES,
    SUMS_DTYPE,
    Description,
    Problem,
    default_dtype,
    dtype_name,
)
from cutepy.kernels.gemm.results import result_descriptions

P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with plain extents and without tracing."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if not torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return function(*arguments, **named)
        torch_c: Any = torch._C
        state = torch_c._get_tracing_state()
        torch_c._set_tracing_state(None)
        try:
            return function(*arguments, **named)
        finally:
            torch_c._set_tracing_state(state)

    return call


@untraced
def describe(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: str = identity.text,
    operands: Sequence[Any] = (),
    out_dtype: torch.dtype | None = None,
    out_major: str = "row",
    outs: Sequence[torch.Tensor | None] = (None,),
    *,
    named: bool = False,
) -> Problem:
    """Check all of a product that can be told without data, and describe it: its results too, if there are none yet.

    Parameters
    ----------
    a, b, out_dtype, out_major
        As `cutepy.ops.gemm` takes them.
    epilogue : str
        The text of its graph.
    operands : sequence of Tensor or number
        In the order of the graph's.
    outs : sequence of (Tensor or None)
        Receive the results, all or none.
    named : bool
        Whether the operands are C and a bias, of `gemm` without an epilogue.

    Raises
    ------
    TypeError, ValueError
        If something doesn't fit; the message names the argument.
    """
    graph = Graph.parse(epilogue)
    check_tensor("a", a, OPERAND_DTYPES)
    check_tensor("b", b, OPERAND_DTYPES)
    if not multipliable(dtype_name(a.dtype), dtype_name(b.dtype)):
        raise TypeError(
            f"b must have a's dtype {dtype_name(a.dtype)} (only 8-bit floats mix, and 8-bit integers), got "
            f"{dtype_name(b.dtype)}; convert one of them"
        )
    if b.device != a.device:
        raise ValueError(f"b must be on a's device {a.device}, got {b.device}")
    if out_major not in ("row", "col"):
        raise ValueError(f'out_major must be "row" or "col", got {out_major!r}')
    shape = result_shape(a, b)
    check_sums(a, b)
    check_operands(graph, operands, shape, a.device, batched=b.dim() > 2, named=named)
    sums = a.dtype in INTEGER_DTYPES and graph == identity.graph
    allowed = (*OUTPUT_DTYPES, SUMS_DTYPE) if sums else OUTPUT_DTYPES
    of_a, of_b = described(a), described(b)
    if outs[0] is None:
        dtype = _result_dtype(a, out_dtype, allowed, sums=sums and named)
        results = result_descriptions(graph, of_a, of_b, shape[:-1], dtype, out_major)
    else:
        results = _given_results(graph, of_a, of_b, shape, out_dtype, outs, allowed)
    given = (described(value) if isinstance(value, torch.Tensor) else None for value in operands)
    return Problem(epilogue, of_a, of_b, tuple(given), tuple(results))


def described(tensor: torch.Tensor) -> Description:
    """Describe a tensor, its address taken as aligned to whole units."""
    return Description(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


def _given_results(
    graph: Graph,
    a: Description,
    b: Description,
    shape: Sequence[int],
    out_dtype: torch.dtype | None,
    outs: Sequence[Any],
    allowed: tuple[torch.dtype, ...],
) -> list[Description]:
    """Check the tensors that receive the results, and describe them."""
    names = [out_name(result) for result in graph.results]
    left_open = [n for n, result in enumerate(graph.results) if graph.dtype(result) is None]
    for n in left_open:
        check_tensor(names[n], outs[n], allowed)
        if out_dtype not in (None, outs[n].dtype):
            raise TypeError(
                f"out_dtype must be {names[n]}'s dtype {dtype_name(outs[n].dtype)} or be left out, got "
                f"{dtype_name(out_dtype)}"
            )
    dtype = outs[left_open[0]].dtype if left_open else None
    for name, out, wanted in zip(names, outs, result_descriptions(graph, a, b, shape[:-1], dtype, "row"), strict=True):
        check_tensor(name, out, (wanted.dtype,))
        if out.device != a.device:
            raise ValueError(f"{name} must be on a's device {a.device}, got {out.device}")
        if not same_shape(out.shape, wanted.shape):
            raise ValueError(f"{name} must have shape {tuple(wanted.shape)}, got {tuple(out.shape)}")
    return [described(out) for out in outs]


def out_name(result: Result) -> str:
    """Return the name of the receiver of a result in messages: "out", or "out NAME" where `out` has several tensors."""
    return f"out {result.name}" if result.name else "out"


def check_operands(
    graph: Graph,
    operands: Sequence[Any],
    shape: Sequence[int],
    device: torch.device,
    *,
    batched: bool,
    named: bool = False,
) -> None:
    """Check what is passed for an epilogue's operands, where the product has a shape."""
    full = tuple(shape) if len(shape) > 1 else (1, *shape)
    if full[-1] % graph.widest:
        raise EpilogueError(
            f"N must be a multiple of {graph.widest}, whose columns are interleaved, got {full[-1]}; pad b"
        )
    for operand, value in zip(graph.operands, operands, strict=True):
        if named:
            check_tensor(operand.name, value, OUTPUT_DTYPES)
            if operand.shape == "tile" and not broadcasts(value.shape, shape):
                raise ValueError(
                    f"c must have the result's shape {tuple(shape)}, or broadcast to it, got {tuple(value.shape)}"
                )
        if operand.shape == "column" and len(shape) == 1 and isinstance(value, torch.Tensor) and value.dim() == 0:
            value = value.reshape(1)  # of the one row of a vector
        # Without a batch of b, a's leading dimensions are rows, of which a row knows nothing.
        check_operand(operand, value, full if batched or operand.shape != "row" else full[-2:])
        if isinstance(value, torch.Tensor) and value.device != device:
            raise EpilogueError(f"{operand.name} must be on a's device {device}, got {value.device}")


def result_shape(a: torch.Tensor, b: torch.Tensor) -> list[int]:
    """Give the shape of a product, having checked those of its operands."""
    check_dimensions(a.shape, b.shape)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"b must be (..., N, K) with a's K = {a.shape[-1]}, got shape {tuple(b.shape)}; gemm computes a @ b.mT, so "
            "pass the transpose of what a @ b takes"
        )
    if b.dim() == 2:
        return [*a.shape[:-1], b.shape[-2]]
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"the batches of a and b must broadcast, got shapes {tuple(a.shape)} and {tuple(b.shape)}"
        ) from error
    return [*batch, a.shape[-2], b.shape[-2]]


def check_sums(a: torch.Tensor, b: torch.Tensor) -> None:
    """Check that the tensor cores may sum products of these types: that float32 may be rounded, and int32 holds sums.

    Raises
    ------
    TypeError, ValueError
        If not.
    """
    check_precision("a", a)
    if a.dtype in INTEGER_DTYPES:
        most = rules.longest_sum(dtype_name(a.dtype), dtype_name(b.dtype))
        # A K that is not known yet is no reason to bound it: the launch is checked, too.
        if isinstance(a.shape[-1], int) and a.shape[-1] > most:
            raise ValueError(
                f"K must be at most {most} for {dtype_name(a.dtype)} by {dtype_name(b.dtype)}, whose sums int32 then "
                f"holds, got {a.shape[-1]}; multiply parts of K, and add their products in float64 or int64"
            )


def _result_dtype(
    a: torch.Tensor, out_dtype: torch.dtype | None, allowed: tuple[torch.dtype, ...], *, sums: bool
) -> torch.dtype:
    dtype = out_dtype or default_dtype(a.dtype, sums=sums)
    if dtype not in allowed:
        got = dtype_name(dtype) if isinstance(dtype, torch.dtype) else f"{dtype!r}, which is no torch.dtype"
        *most, last = (f"torch.{dtype_name(each)}" for each in allowed)
        why = f" ({SUMS_DTYPE} is for sums of products of integers as they are)" if dtype == SUMS_DTYPE else ""
        raise TypeError(f"out_dtype must be {', '.join(most)} or {last}, got {got}{why}")
    return dtype


def check_dimensions(a: Sequence[int], b: Sequence[int]) -> None:
    """Check how many dimensions the operands have."""
    if len(a) < 1 or len(b) < 2 or (len(b) > 2 and len(a) < 2):
        raise ValueError(
            f"a must be (..., K) and b (N, K), or a (..., M, K) and b (..., N, K), got {tuple(a)} and {tuple(b)}"
        )


def as_tensor(name: str, given: object) -> torch.Tensor:
    """Return an argument that is a tensor.

    Raises
    ------
    TypeError
        If it is something else.
    """
    if not isinstance(given, torch.Tensor):
        is_number = isinstance(given, (bool, int, float, list, tuple))
        remedy = "convert it by torch.from_dlpack" if hasattr(given, "__dlpack__") else "pass one"
        remedy = "convert it by torch.tensor" if is_number else remedy
        raise TypeError(f"{name} must be a torch.Tensor, got {type(given).__name__}; {remedy}")
    return given


def require_tensors(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse arguments that are no dense tensors where a function's annotations want tensors.

    To be called where something failed, so that other calls pay nothing.

    Parameters
    ----------
    function : callable
        Its annotations are text.
    given : mapping
        Values of its parameters by name.

    Raises
    ------
    TypeError
        If there is one.
    """
    for name, wanted in function.__annotations__.items():
        if name in given and (
            wanted == "torch.Tensor" or (wanted == "torch.Tensor | None" and given[name] is not None)
        ):
            check_dense(name, as_tensor(name, given[name]))


def check_dense(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor whose elements have no strides.

    Raises
    ------
    TypeError
        If it is nested or sparse.
    """
    if tensor.is_nested or tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {'a nested one' if tensor.is_nested else tensor.layout}")


def check_tensor(name: str, tensor: object, allowed: tuple[torch.dtype, ...]) -> None:
    """Check that an argument is a dense tensor of an allowed dtype."""
    tensor = as_tensor(name, tensor)
    if tensor.layout != torch.strided or tensor.is_nested:  # a warm call has no frame for it
        check_dense(name, tensor)
    if tensor.dtype not in allowed:
        *most, last = names = [dtype_name(dtype) for dtype in allowed]
        raise TypeError(
            f"{name} must have dtype {' or '.join(filter(None, (', '.join(most), last)))}, got "
            f"{dtype_name(tensor.dtype)}; {_remedy(name, tensor.dtype, names)}"
        )


_FACTORS, _ADDENDS = ("a", "b"), ("c", "bias")
_QUANTISED = {getattr(torch, name) for name in ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")}


@functools.cache
def _can_convert(dtype: torch.dtype) -> bool:
    try:
        torch.empty(1, dtype=dtype).to(torch.bfloat16)
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _remedy(name: str, dtype: torch.dtype, allowed: Sequence[str]) -> str:
    """Return the call that converts a tensor to an allowed dtype, and the loss of the conversion."""
    to = f".to(torch.{'bfloat16' if 'bfloat16' in allowed else allowed[0]})"
    if dtype.is_complex:  # .to() would drop the imaginary part
        parts = f"{name}.real{to} and {name}.imag{to}"
        if name in _ADDENDS:
            return f"leave it out and add it to the result, or add {parts} to products of their own"
        if name not in _FACTORS:
            return f"pass {parts} on their own"
        return f"multiply {parts} on their own, or use torch.matmul, which multiplies complex numbers"
    if dtype in _QUANTISED:
        return f"convert it with {name}.dequantize(){to}"
    if not _can_convert(dtype):
        each = "each half of a byte" if "x2" in dtype_name(dtype) else "each byte"
        values = f"a table of its values with the codes in {name}.view(torch.uint8), {each}"
        return f"torch can't convert it: index {values}, then use {to}"
    remedy = f"convert it with {name}{to}"
    if dtype == torch.float32 and "bfloat16" in allowed:
        return f"{remedy}, or call within torch.autocast"
    if not dtype.is_floating_point and dtype != torch.bool and to == ".to(torch.bfloat16)":
        return f"{remedy}, which holds integers up to 256 exactly"
    return remedy


# Since torch 2.9; the only one that may be asked whichever of torch's settings was used. Through
# torch.backends.cuda.matmul it takes several times as long.
_precision: Callable[[str, str], str] | None = getattr(torch._C, "_get_fp32_precision_getter", None)


def tf32_allowed() -> bool:
    """Tell whether torch's settings let products of float32 round their operands to tf32.

    These are `torch.set_float32_matmul_precision("high")`, or "medium", `torch.backends.cuda.matmul.allow_tf32 = True`
    and, since torch 2.9, `torch.backends.cuda.matmul.fp32_precision = "tf32"` or that of `torch.backends`.
    """
    if _precision is None:
        return torch.get_float32_matmul_precision() != "highest"
    return _precision("cuda", "matmul") == "tf32"


def check_precision(name: str, tensor: object) -> None:
    """Check that an operand may be rounded, if it is a tensor of float32.

    Raises
    ------
    TypeError
        If not.
    """
    if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32 and not tf32_allowed():
        raise TypeError(
            f"{name} has dtype float32, which the tensor cores round to tf32, of 11 significant bits; allow that with "
            f'torch.set_float32_matmul_precision("high"), convert it with {name}.to(torch.bfloat16), or call within '
            "torch.autocast"
        )


def check_epilogue(epilogue: object) -> None:
    """Refuse an epilogue that `cutepy.epilogue` has not made.

    Raises
    ------
    TypeError
        For a plain function, for example.
    """
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue must be made by cutepy.epilogue, got {epilogue!r}; decorate the function")


def check_apart(name: str, out: torch.Tensor, inputs: Mapping[str, torch.Tensor], same: Container[str] = ()) -> None:
    """Refuse a result that could share memory with an input: exact for blocks of one matrix, else by address range.

    It may be an input of `same` itself: each element of that is read before it is written.

    Raises
    ------
    ValueError
        If they could; the message names the input.
    """
    for other, tensor in inputs.items():
        if may_overlap(out, tensor) and not (other in same and _same_elements(out, tensor)):
            raise ValueError(
                f"{name} must share no memory with {other}: parts of it are written while others of {other} are still "
                f"to be read; pass a new tensor{f', or {other} itself' if other in same else ''}"
            )


def check_results_apart(names: Sequence[str], outs: Sequence[torch.Tensor]) -> None:
    """Refuse results that could share memory with each other.

    Raises
    ------
    ValueError
        If two could; the message names both.
    """
    for (other, earlier), (name, out) in combinations(zip(names, outs, strict=True), 2):
        if may_overlap(out, earlier):
            raise ValueError(f"{name} must share no memory with {other}; pass tensors that lie apart")


def check_without_overlap(name: str, out: Description) -> None:
    """Refuse a result two of whose elements may share memory.

    Raises
    ------
    ValueError
        If they may.
    """
    if overlaps_itself(out):
        raise ValueError(f"{name} must not overlap itself, got {out}; pass one whose elements lie apart")


def overlaps_itself(tensor: Description | torch.Tensor) -> bool:
    """Tell whether two elements may share memory: whether modes, from the closest on, do not step over each other."""
    span, strides = 1, tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride
    for stride, extent in sorted(zip(strides, tensor.shape, strict=True)):
        if extent > 1 and stride < span:
            return True
        span += stride * (extent - 1)
    return False


def may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell whether two tensors could share a byte: exact for blocks of one matrix, else by address range.

    Batches are seen as matrices where a view joins their rows.
    """
    if x.device != y.device:
        return False
    # A tensor without elements is at address 0, and has no bytes.
    if x.data_ptr() + span_bytes(x) <= y.data_ptr() or y.data_ptr() + span_bytes(y) <= x.data_ptr():
        return False
    x_rows, y_rows = _rows(x), _rows(y)
    return x_rows is None or y_rows is None or _rows_may_overlap(x_rows, y_rows)


def _rows_may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell whether rows of two matrices may share bytes, given overlapping address ranges."""
    (x_pitch, x_row), (y_pitch, y_row) = _pitch_and_row_bytes(x), _pitch_and_row_bytes(y)
    pitches = {pitch for pitch in (x_pitch, y_pitch) if pitch}
    if len(pitches) != 1:
        return True
    # Both are rows of one pitch, so they are apart just if their columns of bytes are, around the pitch's end.
    pitch = pitches.pop()
    offset = (y.data_ptr() - x.data_ptr()) % pitch
    return offset < x_row or offset + y_row > pitch


def _rows(tensor: torch.Tensor) -> torch.Tensor | None:
    """See a batch as one matrix, its rows joined; None where no view does."""
    if tensor.dim() == 2:
        return tensor
    try:
        return tensor.view(-1, tensor.shape[-1])
    except RuntimeError:  # the only way to ask torch
        return None


def _pitch_and_row_bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """See a matrix as rows at a pitch, 0 if it is one row; a column is rows of one element."""
    steps = sorted((stride, extent) for stride, extent in zip(tensor.stride(), tensor.shape, strict=True) if extent > 1)
    if len(steps) == 1 and steps[0][0] > 1:
        return steps[0][0] * tensor.itemsize, tensor.itemsize
    (stride, extent), (pitch, _) = (*steps, (0, 1), (0, 1))[:2]
    return pitch * tensor.itemsize, ((extent - 1) * stride + 1) * tensor.itemsize


def _same_elements(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)


def span_bytes(tensor: torch.Tensor) -> int:
    """Give the bytes from a tensor's first element to the end of its last."""
    return tensor.nbytes if tensor.is_contiguous() else described(tensor).span_bytes


_PASSED_ON = {"bias", "c", "operands"}
"""Parameters that are an epilogue's operands if it has such."""


def refusing_its_own_names(operation: Callable[P, R]) -> Callable[P, R]:
    """Make an operation raise EpilogueError of epilogues whose operands have the names of its own parameters.

    What is passed for such an operand Python takes for the parameter.
    """
    names = [name for name in inspect.signature(operation).parameters if name not in _PASSED_ON]
    own = getattr(operation, "__name__", "this operation")

    @functools.wraps(operation)
    def checked(*arguments: P.args, **named: P.kwargs) -> R:
        epilogue = named.get("epilogue")
        if isinstance(epilogue, Epilogue):
            for operand in epilogue.operands:
                if operand.name in names:
                    raise EpilogueError(
                        f"{epilogue.name} has an operand {operand.name}, which can't be passed, since "
                        f"{own} takes {', '.join(names)} itself; give it another name"
                    )
        return operation(*arguments, **named)

    return checked


def refuse_operands_of_none(operation: str, operands: Mapping[str, Any]) -> NoReturn:
    """Refuse operands of an epilogue in a call without an epilogue.

    Raises
    ------
    TypeError
        That says what it takes instead of an option that others have.
    """
    if found := sorted(operands.keys() & _OF_OTHERS.keys()):
        raise TypeError(f"{operation} has no option {found[0]}: {_OF_OTHERS[found[0]]}")
    raise TypeError(f"{operation} has no parameter {min(operands)}; pass the epilogue whose operand it is, epilogue=")


_BY_GROUPS = "use cutepy.ops.grouped_gemm or scaled_grouped_gemm, whose products are those of groups"
_SCALED = "use an operation of scaled operands, cutepy.ops.scaled_gemm or scaled_grouped_gemm"
_OF_OTHERS = {
    "activation": "apply it by an epilogue, such as epilogue=cutepy.epilogues.relu",
    "bias": "add it by an epilogue that has it as a Row",
    "c": "add it by an epilogue that has it as a Tile",
    "counts": _BY_GROUPS,
    "offs": _BY_GROUPS,
    "out": "it makes its results; leave it out, and copy them",
    "out_major": "the groups decide which extent of a result is contiguous; leave it out",
    "scale_a": _SCALED,
    "scale_b": _SCALED,
    "use_fast_accum": _SCALED,
}
"""Remedy where an operation lacks an argument that another has."""
