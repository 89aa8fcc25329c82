"""Specifications of a compiled function's tensors and pointers, with names for the extents that vary."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutepy.runtime.dtypes import dlpack_type

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class TensorSpec:
    """Type, extents, strides and alignment of the tensors that a compiled function takes for one parameter.

    Parameters
    ----------
    dtype : torch.dtype, numpy.dtype or str
        Element type, kept as torch's name of it, such as "float16".
    shape : sequence of int or str
        Extents: a number is part of what is compiled, a name may vary from call to call. A name that appears in
        several tensors of a function must have one value in all of them.
    stride_order : sequence of int, optional
        For a compact tensor: the place of each dimension when they are sorted by stride, 0 for that of stride 1.
        By default the last dimension is contiguous. A stride that a named extent decides is read at each call, and may
        be larger: rows may be apart.
    strides : sequence of int or str, optional
        Instead of `stride_order`: strides in elements, numbers or names (other than the extents').
    divisibility : mapping of str to int, optional
        Divisors of the values of names.
    align : int
        Alignment of the address in bytes: a power of two.
    nonempty : sequence of str, optional
        Names of extents that are never 0: calls with such tensors are refused before anything is launched.

    Raises
    ------
    ValueError
        If shape, strides, order, divisibility, alignment or `nonempty` make no sense.

    Examples
    --------
    >>> TensorSpec("float16", ("m", "k"), strides=("lda", 1), divisibility={"k": 8, "lda": 8})
    TensorSpec(float16 (m, k % 8):(lda % 8, 1), align 16)
    >>> TensorSpec("float32", ("n", 64), stride_order=(0, 1))
    TensorSpec(float32 (n, 64) order (0, 1), align 16)
    >>> TensorSpec("float32", ("m", "n"), nonempty=("n",))
    TensorSpec(float32 (m, n > 0), align 16)
    """

    dtype: str
    shape: tuple[int | str, ...]
    stride_order: tuple[int, ...] | None = field(default=None, kw_only=True)
    strides: tuple[int | str, ...] | None = field(default=None, kw_only=True)
    divisibility: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    align: int = field(default=16, kw_only=True)
    nonempty: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        dlpack_type(self.dtype)
        if isinstance(self.shape, str):
            raise ValueError(f"shape must be a tuple of integers and names, got the string {self.shape!r}")
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "divisibility", dict(self.divisibility))
        self._check_nonempty()
        for name in ("stride_order", "strides"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(value))
        self._check_extents()
        self._check_strides()
        unknown = self.divisibility.keys() - {*self.names, *self.stride_names}
        if unknown:
            raise ValueError(f"divisibility must be of names in the shape or strides, got {', '.join(sorted(unknown))}")
        for name, divisor in self.divisibility.items():
            if not isinstance(divisor, int) or divisor < 1:
                raise ValueError(f"divisibility of {name} must be a positive integer, got {divisor!r}")
        if self.align < 1 or self.align & (self.align - 1):
            raise ValueError(f"align must be a power of two in bytes, got {self.align}")

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        def named(value: int | str) -> str:
            divisor = self.divisibility.get(value, 1) if isinstance(value, str) else 1
            least = " > 0" if value in self.nonempty else ""
            return (f"{value} % {divisor}" if divisor > 1 else str(value)) + least

        def listed(values: Sequence[int | str]) -> str:
            return f"({', '.join(map(named, values))}{',' if len(values) == 1 else ''})"

        layout = listed(self.shape)
        if self.strides is not None:
            layout += f":{listed(self.strides)}"
        if self.stride_order is not None:
            layout += f" order {self.stride_order}"
        return f"TensorSpec({self.dtype} {layout}, align {self.align})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names among the extents, each once."""
        return tuple(dict.fromkeys(extent for extent in self.shape if isinstance(extent, str)))

    @property
    def stride_names(self) -> tuple[str, ...]:
        """Names among the strides, each once."""
        return tuple(dict.fromkeys(stride for stride in self.strides or () if isinstance(stride, str)))

    @property
    def expected_strides(self) -> tuple[int | str | None, ...]:
        """Required strides: numbers, names, and None where a named extent determines the stride.

        Examples
        --------
        >>> TensorSpec("float32", ("n", 4, 8)).expected_strides
        (32, 8, 1)
        >>> TensorSpec("float32", (4, "n")).expected_strides
        (None, 1)
        """
        if self.strides is not None:
            return self.strides
        order = self.stride_order or tuple(reversed(range(len(self.shape))))
        strides: list[int | str | None] = [None] * len(order)
        step: int | None = 1
        for place in range(len(order)):
            dimension = order.index(place)
            strides[dimension] = step
            extent = self.shape[dimension]
            step = step * extent if isinstance(extent, int) and step is not None else None
        return tuple(strides)

    def decides_stride(self, dimension: int) -> str | None:
        """Return the name that determines a stride: its own, or the innermost named extent it spans; None for a number.

        Examples
        --------
        >>> TensorSpec("float16", ("m", "k")).decides_stride(0)
        'k'
        """
        if self.strides is not None:
            stride = self.strides[dimension]
            return stride if isinstance(stride, str) else None
        order = self.stride_order or tuple(reversed(range(len(self.shape))))
        spanned = sorted((order[d], extent) for d, extent in enumerate(self.shape) if order[d] < order[dimension])
        return next((extent for _, extent in spanned if isinstance(extent, str)), None)

    @classmethod
    def like(
        cls,
        tensor: Any,  # noqa: ANN401 - a torch tensor or numpy array
        shape: Sequence[int | str | None] | None = None,
        *,
        divisibility: Mapping[str, int] | None = None,
        align: int | None = None,
    ) -> TensorSpec:
        """Make the spec of an example tensor, with names for the dimensions that may vary.

        Parameters
        ----------
        tensor : torch.Tensor or numpy.ndarray
            The example: its dtype, extents and order of dimensions are taken; a fake or meta tensor will do.
        shape : sequence, optional
            A name, or None or the extent itself for a dimension that stays as it is.
        divisibility, align
            As for `TensorSpec`; by default the alignment is 16 bytes, or what the tensor's address has if that is less.

        Examples
        --------
        >>> import numpy as np
        >>> TensorSpec.like(np.zeros((128, 64), "float16"), ("m", None), align=16)
        TensorSpec(float16 (m, 64), align 16)
        """
        extents, strides = tuple(map(int, tensor.shape)), element_strides(tensor)
        names = extents if shape is None else tuple(shape)
        if len(names) != len(extents):
            raise ValueError(f"shape must name the {len(extents)} dimensions of {extents}, got {names}")
        mixed = tuple(extent if name is None else name for extent, name in zip(extents, names, strict=True))
        for extent, name in zip(extents, mixed, strict=True):
            if isinstance(name, int) and name != extent:
                raise ValueError(f"shape must repeat the tensor's extents {extents} or name them, got {mixed}")
        order = _compact_order(extents, strides)
        if order is None and mixed != extents:
            raise ValueError(
                f"the tensor must be compact where dimensions are named, got strides {strides} for {extents}; "
                "say what its strides are with TensorSpec(..., strides=...)"
            )
        return cls(
            dtype_name(tensor.dtype),
            mixed,
            stride_order=None if order == tuple(reversed(range(len(extents)))) else order,
            strides=strides if order is None else None,
            divisibility=divisibility or {},
            align=_alignment(tensor) if align is None else align,
        )

    def _check_extents(self) -> None:
        for extent in self.shape:
            named = isinstance(extent, str) and _NAME.fullmatch(extent)
            if not named and not (isinstance(extent, int) and not isinstance(extent, bool) and extent > 0):
                raise ValueError(f"shape must hold positive integers and names, got {extent!r} in {self.shape}")

    def _check_nonempty(self) -> None:
        if isinstance(self.nonempty, str):
            raise ValueError(f"nonempty must be a tuple of names of extents, got the string {self.nonempty!r}")
        object.__setattr__(self, "nonempty", tuple(self.nonempty))
        if unknown := set(self.nonempty) - set(self.names):
            raise ValueError(f"nonempty must be of names in the shape, got {', '.join(sorted(unknown))}")

    def _check_strides(self) -> None:
        rank = len(self.shape)
        if self.strides is not None and self.stride_order is not None:
            raise ValueError("strides and stride_order say the same in two ways; give one of them")
        if self.stride_order is not None and sorted(self.stride_order) != list(range(rank)):
            raise ValueError(f"stride_order must be a permutation of 0 to {rank - 1}, got {self.stride_order}")
        if self.strides is None:
            return
        if len(self.strides) != rank:
            raise ValueError(f"strides must be {rank}, one for each dimension of {self.shape}, got {self.strides}")
        for stride in self.strides:
            named = isinstance(stride, str) and _NAME.fullmatch(stride)
            if not named and not (isinstance(stride, int) and stride >= 0):
                raise ValueError(f"strides must be integers from 0 and names, got {stride!r} in {self.strides}")
        if shared := set(self.names) & set(self.stride_names):
            raise ValueError(f"names of strides must not be names of extents, got {', '.join(sorted(shared))}")


@dataclass(frozen=True)
class PointerSpec:
    """Type and alignment of the addresses that a compiled function takes for a `cute.Pointer` parameter.

    A call passes an integer, a tensor, whose address it is, or one of the DSL's pointers.

    Parameters
    ----------
    dtype : torch.dtype, numpy.dtype or str
        Type of the elements.
    align : int, optional
        Alignment of addresses in bytes; the size of an element if not given. Not checked at a call.
    space : str
        "gmem" or "generic".

    Raises
    ------
    ValueError
        If alignment or space make no sense.

    Examples
    --------
    >>> PointerSpec("float16", align=16)
    PointerSpec(dtype='float16', align=16, space='gmem')
    """

    dtype: str
    align: int = field(default=0, kw_only=True)
    space: str = field(default="gmem", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        _, bits = dlpack_type(self.dtype)
        object.__setattr__(self, "align", self.align or max(bits // 8, 1))
        if self.align < 1 or self.align & (self.align - 1):
            raise ValueError(f"align must be a power of two in bytes, got {self.align}")
        if self.space not in ("gmem", "generic"):
            raise ValueError(f'space must be "gmem" or "generic", got {self.space!r}')


def dtype_name(dtype: Any) -> str:  # noqa: ANN401
    """Return torch's name of an element type, given as torch's, numpy's or a name.

    Examples
    --------
    >>> dtype_name("torch.float16"), dtype_name("float8_e4m3fn")
    ('float16', 'float8_e4m3fn')
    """
    if isinstance(dtype, type):
        return dtype.__name__
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def element_strides(tensor: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Return the strides of a torch tensor or numpy array in elements."""
    if callable(getattr(tensor, "stride", None)):
        return tuple(map(int, tensor.stride()))
    if not hasattr(tensor, "strides"):
        raise TypeError(f"expected a torch tensor or a numpy array, got {described_kind('array', tensor)}")
    return tuple(stride // tensor.itemsize for stride in tensor.strides)


def described_kind(name: str, value: Any) -> str:  # noqa: ANN401
    """Name the type of an argument that is no tensor, and the conversion of one with an array interface."""
    kind = type(value).__name__
    for protocol, remedy in (("__array_interface__", "numpy.asarray"), ("__cuda_array_interface__", "torch.as_tensor")):
        if hasattr(value, protocol) and not hasattr(value, "__dlpack__"):
            return f"{kind}, which has {protocol} and no __dlpack__; pass {remedy}({name})"
    return kind


def _alignment(tensor: Any) -> int:  # noqa: ANN401
    if getattr(tensor, "is_meta", False) or hasattr(tensor, "fake_mode"):
        return 16  # no memory, and so no misaligned address
    address = tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.__array_interface__["data"][0]
    return 16 if address % 16 == 0 else int(address & -address)


def _compact_order(extents: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Return each dimension's place in the compact order of a tensor, None if it is not compact."""
    ranked = sorted(range(len(extents)), key=lambda d: (extents[d] != 1, strides[d], -d))
    step, order = 1, [0] * len(extents)
    if all(strides[d] == s for d, s in enumerate(_row_major(extents)) if extents[d] != 1):
        return tuple(reversed(range(len(extents))))
    for place, dimension in enumerate(ranked):
        if extents[dimension] != 1 and strides[dimension] != step:
            return None
        step *= extents[dimension]
        order[dimension] = place
    return tuple(order)


def _row_major(extents: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    return strides[::-1]
