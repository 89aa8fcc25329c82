"""What a product is asked for, but for addresses, as plain values; and which tensors TMA reaches as they lie.

Tensors are matrices, or batches of them: the last two modes are the matrices'.
"""

from typing import NamedTuple

import torch

from cutepy.kernels.gemm.signature import INPUTS, OUTPUTS, Activation

OPERAND_DTYPES = tuple(getattr(torch, name) for name in INPUTS)
OUTPUT_DTYPES = tuple(getattr(torch, name) for name in OUTPUTS)
UNIT_BYTES = 16
"""What TMA counts addresses and strides in."""


class Description(NamedTuple):
    """What is known of a dense tensor without its address."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Description":
        """Describe a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    def new(self) -> torch.Tensor:
        """Allocate such a tensor."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)

    def __str__(self) -> str:
        return f"shape {tuple(self.shape)} with strides {tuple(self.stride)}"


class Problem(NamedTuple):
    """One product, out = activation(a @ b.mT + c + bias), of tensors of these descriptions.

    Attributes
    ----------
    a, b : Description
    c : Description or None
    out : Description
    bias : torch.dtype or None
        Of a vector.
    activation : str or None
    """

    a: Description
    b: Description
    c: Description | None
    out: Description
    bias: torch.dtype | None
    activation: Activation | None


class Matrix(NamedTuple):
    """A matrix, or a batch of them, as a kernel takes it.

    Attributes
    ----------
    contiguous_mode : 0 or 1
        The mode of stride 1.
    stride : tuple of int
        In elements, meant for all modes even where an extent of 1 makes one meaningless.
    """

    contiguous_mode: int
    stride: tuple[int, ...]


def matrix(tensor: Description) -> Matrix | None:
    """Tell how TMA reaches a matrix, or a batch of them, as it lies, but for its address; None if it doesn't.

    One extent is contiguous and in whole units of 16 bytes: TMA stores no less, so it would write beyond an end within
    one. The other stride is whole units, without overlap; matrices of a batch may lie anywhere, whole units apart. The
    stride of an extent of 1 is never used, so any will do. wgmma transposes 16-bit elements only, so rows of narrower
    ones must be contiguous. TMA holds extents below 2**31 and strides below 2**40 bytes.
    """
    unit, shape = UNIT_BYTES // tensor.dtype.itemsize, tensor.shape[-2:]
    strides = [stride if extent > 1 else None for extent, stride in zip(shape, tensor.stride[-2:], strict=True)]
    for mode in (1, 0) if tensor.dtype.itemsize > 1 else (1,):
        extent, leading = shape[mode], strides[1 - mode]
        fits = leading is None or (leading % unit == 0 and leading >= extent)
        if strides[mode] in (None, 1) and extent % unit == 0 and fits:
            break
    else:
        return None
    pitch = extent if leading is None else leading
    batch = [
        0 if count == 1 and stride % unit else stride
        for count, stride in zip(tensor.shape[:-2], tensor.stride[:-2], strict=True)
    ]
    farthest_bytes = max((pitch, *batch)) * tensor.dtype.itemsize
    if any(stride % unit for stride in batch) or max(tensor.shape) >= 2**31 or farthest_bytes >= 2**40:
        return None
    return Matrix(mode, (*batch, pitch, 1) if mode == 1 else (*batch, 1, pitch))


def dtype_name(dtype: object) -> str:
    """Give torch's short name of a dtype, such as "float16"."""
    return str(dtype).removeprefix("torch.")
