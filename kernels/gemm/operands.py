"""What the tensors of a GEMM must be: types, extents, strides, devices, overlap; each refusal names its argument.

Tensors are matrices, or batches of them: the last two modes are the matrices'.

What can be said of a tensor without its address is a `Description`, a plain value, so that the answer for a problem is
found once and kept. Addresses are checked at each call.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch

from cutepy.dsl import execution
from cutepy.kernels.gemm.config import ACTIVATIONS, MAX_BATCH_MODES

OPERAND_DTYPES = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
OUTPUT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_TMA_BYTES = 16


class Description(NamedTuple):
    """What is known of a dense tensor without its address."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __str__(self) -> str:
        return f"shape {tuple(self.shape)} with strides {self.stride}"


class Matrix(NamedTuple):
    """A matrix, or a batch of them, as a kernel takes it.

    Attributes
    ----------
    dtype : str
        Torch's short name.
    contiguous_mode : 0 or 1
        The mode of stride 1.
    leading_stride : int
        Elements between neighbours along the other mode.
    batch_strides : tuple of int
        Elements between matrices, along each mode of the batch; 0 where they are the same matrix.
    """

    dtype: str
    contiguous_mode: int
    leading_stride: int
    batch_strides: tuple[int, ...] = ()

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements, meant for all modes even where an extent of 1 makes one meaningless."""
        leading = self.leading_stride
        return (*self.batch_strides, leading, 1) if self.contiguous_mode == 1 else (*self.batch_strides, 1, leading)


def describe(name: str, tensor: object) -> Description:
    """Describe an argument, refusing what is no dense tensor or what autograd follows."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_nested:
        raise TypeError(f"{name} must be a dense tensor, got a nested one; multiply its parts one by one")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense (strided) tensor, got {tensor.layout}; call {name}.to_dense()")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires grad, and gemm has no derivative; pass {name}.detach() or use torch.no_grad()"
        )
    if tensor.is_neg():
        raise ValueError(f"{name} must not be a lazy negative; call {name}.resolve_neg()")
    return Description(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def check_operands(
    a: Description, b: Description, c: Description | None
) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Check ranks, dtypes and extents of the inputs; gives the batch and (M, N, K)."""
    _check_rank_and_dtype("a", a, OPERAND_DTYPES)
    _check_rank_and_dtype("b", b, OPERAND_DTYPES)
    if a.dtype != b.dtype and a.dtype.itemsize + b.dtype.itemsize != 2:
        raise TypeError(
            f"b must have a's dtype {dtype_name(a.dtype)} (only 8-bit floats mix), got {dtype_name(b.dtype)}; "
            "convert one of them"
        )
    *extents, m, k = a.shape
    batch, n = tuple(extents), b.shape[-2]
    if b.shape[-1] != k:
        raise ValueError(
            f"b must be ({'batch, ' if batch else ''}N, K) with a's K = {k}, got shape {tuple(b.shape)}; gemm computes "
            f"a @ b.{'mT' if batch else 't()'}, so pass the transpose of what a @ b takes"
        )
    if b.shape[:-2] != batch:
        raise ValueError(
            f"b must have the batch of a, shape {(*batch, n, k)}, got {tuple(b.shape)}; a matrix that several products "
            "share may be expanded, which takes no memory"
        )
    if c is not None:
        _check_rank_and_dtype("c", c, OUTPUT_DTYPES)
        if c.shape != (*batch, m, n):
            expand = "expand a smaller one" if batch else "expand and copy a smaller one"
            raise ValueError(f"c must have shape {_result_shape((*batch, m, n))}, got {tuple(c.shape)}; {expand}")
    return batch, (m, n, k)


def check_bias(bias: Description | None, n: int) -> None:
    """Check the dtype, shape and stride of a bias."""
    if bias is None:
        return
    _check_dtype("bias", bias.dtype, OUTPUT_DTYPES)
    if bias.shape != (n,):
        raise ValueError(f"bias must have shape (N,) = ({n},), got {tuple(bias.shape)}")
    if n > 1 and bias.stride != (1,):
        raise ValueError(f"bias must be contiguous, got stride {bias.stride[0]}; call bias.contiguous()")


def check_out(out: Description, out_dtype: torch.dtype | None, shape: tuple[int, ...]) -> None:
    """Check the rank, dtype and shape of a result tensor that the caller brought."""
    _check_rank_and_dtype("out", out, OUTPUT_DTYPES)
    if out_dtype not in (None, out.dtype):
        raise TypeError(
            f"out_dtype must be out's dtype {dtype_name(out.dtype)} or be left out, got {dtype_name(out_dtype)}"
        )
    if out.shape != shape:
        raise ValueError(f"out must have shape {_result_shape(shape)}, got {tuple(out.shape)}")
    if len(shape) > 2 and _overlaps_itself(out):
        raise ValueError(f"out must not overlap itself, got {out}; pass one whose products lie apart")


def check_options(out_dtype: object, out_major: object, activation: object = None) -> None:
    """Check what says how the result is to be, before it becomes part of a key."""
    if not (out_dtype is None or isinstance(out_dtype, torch.dtype)):
        raise TypeError(f"out_dtype must be a torch.dtype such as torch.float16, got {out_dtype!r}")
    if not (isinstance(out_major, str) and out_major in ("row", "col")):
        raise ValueError(f'out_major must be "row" or "col", got {out_major!r}')
    if not (activation is None or (isinstance(activation, str) and activation in ACTIVATIONS)):
        raise ValueError(f"activation must be {', '.join(ACTIVATIONS)} or None, got {activation!r}")


def describe_new_out(
    shape: tuple[int, ...], out_dtype: torch.dtype | None, out_major: str, a: Description
) -> Description:
    """Describe the contiguous result that we would allocate: each matrix in the order asked for, one after another."""
    dtype = out_dtype or (torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype)
    _check_dtype("out_dtype", dtype, OUTPUT_DTYPES)
    *batch, m, n = (max(extent, 1) for extent in shape)
    stride: tuple[int, ...] = (n, 1) if out_major == "row" else (1, m)
    step = m * n
    for extent in reversed(batch):
        stride, step = (step, *stride), step * extent
    return Description(shape, stride, dtype, a.device)


def check_device(a: Description, **others: Description | None) -> None:
    """Check that all tensors are on one Hopper GPU, or on the CPU while the simulator runs the kernels."""
    simulated = a.device.type == "cpu" and execution.active_backend() is not None
    if a.device.type != "cuda" and not simulated:
        raise ValueError(f'a must be on a CUDA device, got {a.device}; move it with a.to("cuda")')
    for name, other in others.items():
        if other is not None and other.device != a.device:
            raise ValueError(f"{name} must be on a's device {a.device}, got {other.device}")
    if simulated:
        return
    major, minor = _capability(a.device.index)
    if (major, minor) != (9, 0):
        raise ValueError(
            f"a must be on a Hopper GPU (compute capability 9.0), got {a.device} with {major}.{minor}; "
            "wgmma exists on no other"
        )


def matrix(name: str, tensor: Description, extents: str) -> Matrix:
    """Read the major from the strides, and check that the contiguous extent and the other stride are whole 16 bytes.

    TMA stores whole 16-byte units, so a contiguous extent that ends within one would write beyond the matrix.
    `extents` names the second extent and the first, such as "KM". The stride of an extent of 1 is never used, so any
    will do. Matrices of a batch may lie anywhere, as far as they are whole units apart.
    """
    unit = _TMA_BYTES // tensor.dtype.itemsize
    shape = tensor.shape[-2:]
    strides = [stride if extent > 1 else None for extent, stride in zip(shape, tensor.stride[-2:], strict=True)]
    for mode in (1, 0):
        extent, leading = shape[mode], strides[1 - mode]
        fits = leading is None or (leading % unit == 0 and leading >= extent)
        if strides[mode] in (None, 1) and extent % unit == 0 and fits:
            break
    else:
        raise ValueError(_stride_error(name, tensor, extents, unit))
    if mode == 0 and tensor.dtype.itemsize == 1:
        raise ValueError(
            f"{name} must be {extents[0]}-major (stride 1 along {extents[0]}) for 8-bit types, got {tensor}; "
            f"wgmma transposes 16-bit elements only, so call {name}.contiguous()"
        )
    pitch = extent if leading is None else leading
    batch = [
        0 if count == 1 and stride % unit else stride
        for count, stride in zip(tensor.shape[:-2], tensor.stride[:-2], strict=True)
    ]
    if any(stride % unit for stride in batch):
        raise ValueError(
            f"{name} must have matrices that are multiples of {unit} elements apart ({_TMA_BYTES} bytes of "
            f"{dtype_name(tensor.dtype)}, the unit of TMA), got {tensor}; call {name}.contiguous()"
        )
    if max(tensor.shape) >= 2**31 or max((pitch, *batch)) * tensor.dtype.itemsize >= 2**40:
        raise ValueError(
            f"{name} must have extents below 2**31 and strides below 2**40 bytes, which TMA can hold, got {tensor}; "
            "split it"
        )
    return Matrix(dtype_name(tensor.dtype), mode, pitch, tuple(batch))


def check_address(name: str, address: int) -> int:
    """Check that TMA can start at an address."""
    if address % _TMA_BYTES:
        raise ValueError(
            f"{name} must start at a multiple of {_TMA_BYTES} bytes, got address 0x{address:x}; call {name}.clone()"
        )
    return address


def check_overlap(out: torch.Tensor, name: str, tensor: torch.Tensor) -> None:
    """Refuse a result that shares memory with an input, unless it is c itself."""
    if may_overlap(out, tensor) and not (name == "c" and _same_elements(out, tensor)):
        raise ValueError(
            f"out must share no memory with {name}: tiles of out are written while others of {name} are still "
            f"to be read; pass a new tensor{', or c itself' if name == 'c' else ''}"
        )


def may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell whether two tensors could share a byte: exact for blocks of one matrix, else by address range.

    Batches are seen as matrices where a view joins their rows.
    """
    if x.numel() == 0 or y.numel() == 0 or x.device != y.device:
        return False
    (x_start, x_end), (y_start, y_end) = _byte_range(x), _byte_range(y)
    if x_end <= y_start or y_end <= x_start:
        return False
    x_rows, y_rows = _rows(x), _rows(y)
    return x_rows is None or y_rows is None or _rows_may_overlap(x_rows, y_rows)


def _rows_may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell it of matrices whose address ranges overlap."""
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


def dtype_name(dtype: object) -> str:
    """Give torch's short name of a dtype, such as "float16"."""
    return str(dtype).removeprefix("torch.")


def _check_rank_and_dtype(name: str, tensor: Description, allowed: tuple[torch.dtype, ...]) -> None:
    if not 2 <= len(tensor.shape) <= 2 + MAX_BATCH_MODES:
        raise ValueError(
            f"{name} must have 2 dimensions, and up to {MAX_BATCH_MODES} of a batch before them, got "
            f"{len(tensor.shape)} in shape {tuple(tensor.shape)}; flatten the batch"
        )
    _check_dtype(name, tensor.dtype, allowed)


def _check_dtype(name: str, dtype: object, allowed: tuple[torch.dtype, ...]) -> None:
    if dtype not in allowed:
        *most, last = map(dtype_name, allowed)
        convert = "" if name.endswith("dtype") else f"; convert it with {name}.to(torch.bfloat16)"
        raise TypeError(f"{name} must have dtype {', '.join(most)} or {last}, got {dtype_name(dtype)}{convert}")


def _overlaps_itself(tensor: Description) -> bool:
    """Tell whether two elements may share memory: whether modes, from the closest on, do not step over each other."""
    span = 1
    for stride, extent in sorted(zip(tensor.stride, tensor.shape, strict=True)):
        if extent > 1 and stride < span:
            return True
        span += stride * (extent - 1)
    return False


def _result_shape(shape: Sequence[int]) -> str:
    return f"({'batch, ' if len(shape) > 2 else ''}M, N) = {tuple(shape)}"


def _same_elements(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and x.stride() == y.stride() and x.dtype == y.dtype


def _byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    start, last = tensor.data_ptr(), sum((e - 1) * s for e, s in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.itemsize


def _pitch_and_row_bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """See a matrix as rows at a pitch, 0 if it is one row; a column is rows of one element."""
    steps = sorted((stride, extent) for stride, extent in zip(tensor.stride(), tensor.shape, strict=True) if extent > 1)
    if len(steps) == 1 and steps[0][0] > 1:
        return steps[0][0] * tensor.itemsize, tensor.itemsize
    (stride, extent), (pitch, _) = (*steps, (0, 1), (0, 1))[:2]
    return pitch * tensor.itemsize, ((extent - 1) * stride + 1) * tensor.itemsize


def _stride_error(name: str, tensor: Description, extents: str, unit: int) -> str:
    shape = tensor.shape[-2:]
    strides = [stride if extent > 1 else 1 for extent, stride in zip(shape, tensor.stride[-2:], strict=True)]
    if 1 not in strides:
        where = "one dimension" if len(tensor.shape) == 2 else "one of the last two dimensions"
        return f"{name} must have stride 1 along {where}, got {tensor}; call {name}.contiguous()"
    mode = 1 if strides[1] == 1 else 0
    extent, contiguous, leading = extents[1 - mode], shape[mode], strides[1 - mode]
    if shape[1 - mode] > 1 and leading < contiguous:
        return f"{name} must not overlap itself, got {tensor}; call {name}.contiguous()"
    what = "contiguous extent" if contiguous % unit else "leading stride"
    return (
        f"{name} must have a {what} that is a multiple of {unit} elements ({_TMA_BYTES} bytes of "
        f"{dtype_name(tensor.dtype)}, the unit of TMA), got {tensor}; pad {extent} to a multiple of {unit}"
    )


@cache
def _capability(device_index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device_index)
