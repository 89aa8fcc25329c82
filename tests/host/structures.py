"""Functions whose parameters are named tuples, dataclasses and pointers."""

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute


class Pair(NamedTuple):
    x: cute.Tensor
    y: cute.Tensor | None
    factor: cutlass.Float32


class Scaling(NamedTuple):
    x: cute.Tensor
    times: cutlass.Constexpr[int]
    sign: cutlass.Constexpr


@dataclass(frozen=True)
class Inner:
    x: cute.Tensor
    times: cutlass.Constexpr[int]


@dataclass
class Outer:
    inner: Inner
    y: cute.Tensor
    factor: cutlass.Float32


@cute.kernel
def _scale(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32):
    i = cute.arch.thread_idx()[0]
    y[i] = x[i] * factor


@cute.jit
def of_pair(pair: Pair, y: cute.Tensor):
    """Scale what is in a named tuple."""
    _scale(pair.x, y, pair.factor).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def of_any_pair(pair, y: cute.Tensor):
    """Scale what is in a named tuple that nothing announces."""
    _scale(pair.x, y, pair.factor).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def of_scaling(scaling: Scaling, y: cute.Tensor):
    """Scale by what is constant in a named tuple."""
    assert isinstance(scaling.times, int)
    factor = cutlass.Float32(-scaling.times if scaling.sign == "negated" else scaling.times)
    _scale(scaling.x, y, factor).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def of_outer(outer: Outer):
    """Scale what is in dataclasses within each other, one with a constant."""
    _scale(outer.inner.x, outer.y, outer.factor * outer.inner.times).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def of_pointer(pointer: cute.Pointer, y: cute.Tensor):
    """Double what is pointed to."""
    x = cute.make_tensor(pointer, cute.make_layout(32))
    _scale(x, y, cutlass.Float32(2.0)).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def of_pointers(x: cute.Pointer, stream, y: cute.Pointer, n: cutlass.Int32):
    """Double what is pointed to, on a stream that no tensor tells of."""
    layout = cute.make_layout(32)
    x, y = cute.make_tensor(x, layout), cute.make_tensor(y, layout)
    _scale(x, y, cutlass.Float32(2.0)).launch(grid=(n, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def of_tensors(x: cute.Tensor, y: cute.Tensor):
    """Copy."""
    _scale(x, y, cutlass.Float32(1.0)).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def _add(x: cute.Tensor):
    row = cute.local_tile(x[cute.arch.block_idx()[0], cute.arch.thread_idx()[0], None], (4,), (0,))
    values = row.load() + 1.0
    row.store(values)


@cute.jit
def of_rows(x: cute.Tensor):
    """Add 1 to four neighbours at a time."""
    _add(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


class Fixed(NamedTuple):
    x: cute.Tensor
    times: cutlass.Constexpr[int]


@cute.jit
def of_any_fixed(fixed, y: cute.Tensor):
    """Scale what is in a named tuple by a constant that is in it too."""
    _scale(fixed.x, y, cutlass.Float32(fixed.times)).launch(grid=(1, 1, 1), block=(32, 1, 1))
