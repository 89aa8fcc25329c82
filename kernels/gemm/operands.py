"""What the tensors of a GEMM must be: types, extents, strides, devices, overlap; each refusal names its argument."""

from dataclasses import dataclass
from functools import cache

import torch

from cutepy.dsl.compile import MatrixArgument

OPERAND_DTYPES = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
OUTPUT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_TMA_BYTES = 16


@dataclass(frozen=True)
class Matrix:
    """A checked matrix: torch's name of its dtype, its contiguous mode, and what a kernel is told of it."""

    dtype: str
    contiguous_mode: int
    argument: MatrixArgument


def check_operands(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> tuple[int, int, int]:
    """Check kinds, ranks, dtypes and extents of the inputs; gives (M, N, K)."""
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        if tensor is not None or name != "c":
            check_dtype(name, check_tensor(name, tensor).dtype, OUTPUT_DTYPES if name == "c" else OPERAND_DTYPES)
    if a.dtype != b.dtype and a.dtype.itemsize + b.dtype.itemsize != 2:
        raise TypeError(
            f"b must have a's dtype {dtype_name(a.dtype)} (only 8-bit floats mix), got {dtype_name(b.dtype)}; "
            "convert one of them"
        )
    m, k = a.shape
    n = b.shape[0]
    if b.shape[1] != k:
        raise ValueError(
            f"b must be (N, K) with a's K = {k}, got shape {tuple(b.shape)}; gemm computes a @ b.t(), so pass the "
            "transpose of what a @ b takes"
        )
    if c is not None and c.shape != (m, n):
        raise ValueError(f"c must have shape (M, N) = {(m, n)}, got {tuple(c.shape)}; expand and copy a smaller one")
    return m, n, k


def check_tensor(name: str, tensor: object) -> torch.Tensor:
    """Check that an argument is a dense matrix that autograd does not follow."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense (strided) tensor, got {tensor.layout}; call {name}.to_dense()")
    if tensor.ndim != 2:
        raise ValueError(f"{name} must have 2 dimensions, got {tensor.ndim} in shape {tuple(tensor.shape)}")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires grad, and gemm has no derivative; pass {name}.detach() or use torch.no_grad()"
        )
    if tensor.is_neg():
        raise ValueError(f"{name} must not be a lazy negative; call {name}.resolve_neg()")
    return tensor


def check_dtype(name: str, dtype: object, allowed: tuple[torch.dtype, ...]) -> None:
    """Check a dtype against those that the kernel has."""
    if dtype not in allowed:
        *most, last = map(dtype_name, allowed)
        convert = "" if name.endswith("dtype") else f"; convert it with {name}.to(torch.bfloat16)"
        raise TypeError(f"{name} must have dtype {', '.join(most)} or {last}, got {dtype_name(dtype)}{convert}")


def check_out(
    out: torch.Tensor,
    out_dtype: torch.dtype | None,
    shape: tuple[int, int],
    inputs: dict[str, torch.Tensor | None],
) -> None:
    """Check a result tensor that the caller brought: kind, dtype, shape, and that it overlaps no input but c."""
    check_dtype("out", check_tensor("out", out).dtype, OUTPUT_DTYPES)
    if out_dtype not in (None, out.dtype):
        raise TypeError(
            f"out_dtype must be out's dtype {dtype_name(out.dtype)} or be left out, got {dtype_name(out_dtype)}"
        )
    if out.shape != shape:
        raise ValueError(f"out must have shape (M, N) = {shape}, got {tuple(out.shape)}")
    for name, tensor in inputs.items():
        if tensor is None or (name == "c" and _same_elements(out, tensor)):
            continue
        if may_overlap(out, tensor):
            raise ValueError(
                f"out must share no memory with {name}: tiles of out are written while others of {name} are still "
                f"to be read; pass a new tensor{', or c itself' if name == 'c' else ''}"
            )


def check_new_out(shape_mnk: tuple[int, int, int], dtype: torch.dtype, out_major: str) -> None:
    """Check the layout of the contiguous result that we would allocate."""
    if out_major not in ("row", "col"):
        raise ValueError(f'out_major must be "row" or "col", got {out_major!r}')
    m, n, k = shape_mnk
    unit = _TMA_BYTES // dtype.itemsize
    extent, contiguous, other = ("N", n, m) if out_major == "row" else ("M", m, n)
    if m * n * k and other > 1 and contiguous % unit:
        padded, turned = ("b", "col") if out_major == "row" else ("a", "row")
        raise ValueError(
            f"out would be {out_major}-major with {extent} = {contiguous}, which must be a multiple of {unit} "
            f'({_TMA_BYTES} bytes of {dtype_name(dtype)}); pad {padded}, use out_major="{turned}", or pass an out with '
            "padded strides"
        )


def check_device(a: torch.Tensor, **others: torch.Tensor | None) -> None:
    """Check that all tensors are on one Hopper GPU."""
    if a.device.type != "cuda":
        raise ValueError(f'a must be on a CUDA device, got {a.device}; move it with a.to("cuda")')
    for name, tensor in others.items():
        if tensor is not None and tensor.device != a.device:
            raise ValueError(f"{name} must be on a's device {a.device}, got {tensor.device}")
    major, minor = _capability(a.device.index)
    if (major, minor) != (9, 0):
        raise ValueError(
            f"a must be on a Hopper GPU (compute capability 9.0), got {a.device} with {major}.{minor}; "
            "wgmma exists on no other"
        )


def matrix(name: str, tensor: torch.Tensor, extents: str) -> Matrix:
    """Read the major from the strides, and check what TMA needs: 16-byte address and leading stride.

    `extents` names the second extent and the first, such as "KM". The stride of an extent of 1 is never used, so any
    will do.
    """
    unit = _TMA_BYTES // tensor.itemsize
    strides = [stride if extent > 1 else None for extent, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    for mode in (1, 0):
        leading, extent = strides[1 - mode], tensor.shape[mode]
        if strides[mode] in (None, 1) and (leading is None or (leading % unit == 0 and leading >= extent)):
            break
    else:
        raise ValueError(_stride_error(name, tensor, extents, unit))
    if mode == 0 and tensor.itemsize == 1:
        raise ValueError(
            f"{name} must be {extents[0]}-major (stride 1 along {extents[0]}) for 8-bit types, {_got(tensor)}; "
            f"wgmma transposes 16-bit elements only, so call {name}.contiguous()"
        )
    if tensor.data_ptr() % _TMA_BYTES:
        raise ValueError(
            f"{name} must start at a multiple of {_TMA_BYTES} bytes, got address 0x{tensor.data_ptr():x}; "
            f"call {name}.clone()"
        )
    pitch = leading if leading is not None else -(-extent // unit) * unit
    if max(tensor.shape) >= 2**31 or pitch * tensor.itemsize >= 2**40:
        raise ValueError(
            f"{name} must have extents below 2**31 and strides below 2**40 bytes, which TMA can hold, {_got(tensor)}; "
            "split it"
        )
    rows, columns = tensor.shape
    return Matrix(dtype_name(tensor.dtype), mode, MatrixArgument(tensor.data_ptr(), rows, columns, pitch))


def may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell whether two matrices could share a byte: exact for blocks of one matrix, else by address range."""
    if x.numel() == 0 or y.numel() == 0 or x.device != y.device:
        return False
    (x_start, x_end), (y_start, y_end) = _byte_range(x), _byte_range(y)
    if x_end <= y_start or y_end <= x_start:
        return False
    pitches = {max(tensor.stride()) * tensor.itemsize for tensor in (x, y) if min(tensor.shape) > 1}
    if len(pitches) != 1:
        return True
    # Both are rows of one pitch, so they are apart just if their columns of bytes are, around the pitch's end.
    pitch = pitches.pop()
    x_row, y_row = (min(_row_bytes(tensor), pitch) for tensor in (x, y))
    offset = (y_start - x_start) % pitch
    return offset < x_row or offset + y_row > pitch


def dtype_name(dtype: object) -> str:
    """Give torch's short name of a dtype, such as "float16"."""
    return str(dtype).removeprefix("torch.")


def _same_elements(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and x.stride() == y.stride() and x.dtype == y.dtype


def _byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.itemsize


def _row_bytes(tensor: torch.Tensor) -> int:
    stride, extent = min(zip(tensor.stride(), tensor.shape, strict=True))
    return ((extent - 1) * stride + 1) * tensor.itemsize


def _stride_error(name: str, tensor: torch.Tensor, extents: str, unit: int) -> str:
    if 1 not in tensor.stride():
        return f"{name} must have stride 1 along one dimension, {_got(tensor)}; call {name}.contiguous()"
    mode = 1 if tensor.stride(1) == 1 else 0
    if tensor.stride(1 - mode) < tensor.shape[mode]:
        return f"{name} must not overlap itself, {_got(tensor)}; call {name}.contiguous()"
    return (
        f"{name} must have a leading stride that is a multiple of {unit} elements (TMA takes strides of {_TMA_BYTES} "
        f"bytes), {_got(tensor)}; pad {extents[1 - mode]} to a multiple of {unit}"
    )


def _got(tensor: torch.Tensor) -> str:
    return f"got shape {tuple(tensor.shape)} with strides {tensor.stride()}"


@cache
def _capability(device_index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device_index)
