"""Kernels that the tests of the host path compile."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream


@cute.kernel
def _add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, scale: cutlass.Float32, bias: cutlass.Constexpr):
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < cute.size(a):
        c[i] = a[i] + scale * b[i] + bias


@cute.jit
def add(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    scale: cutlass.Float32,
    stream: CUstream,
    bias: cutlass.Constexpr = 0.0,
):
    """c = a + scale * b + bias, of vectors."""
    _add(a, b, c, scale, bias).launch(grid=(cute.ceil_div(cute.size(a), 128), 1, 1), block=(128, 1, 1), stream=stream)


@cute.kernel
def _copy(x: cute.Tensor, y: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    for j in range(cute.size(x, mode=[1])):
        y[i, j] = x[i, j]


@cute.jit
def copy(x: cute.Tensor, y: cute.Tensor | None, *, rows: cutlass.Constexpr[int] = 32):
    """Copy a matrix of `rows` rows, if there is a place for it."""
    if cutlass.const_expr(y is not None):
        _copy(x, y).launch(grid=(1, 1, 1), block=(rows, 1, 1))
    else:
        _copy(x, x).launch(grid=(1, 1, 1), block=(rows, 1, 1))


@cute.jit
def copy_pair(pair: tuple):
    """Copy the first matrix of a pair to the second."""
    _copy(pair[0], pair[1]).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def _fill(a: cute.Tensor, value):
    a[cute.arch.thread_idx()[0]] = cutlass.Float32(value)


@cute.jit
def fill(a: cute.Tensor, value):
    """Fill a vector of 32 with a number of any type."""
    _fill(a, value).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def named(a: cute.Tensor, count: cutlass.Constexpr[int]):
    """Fill a vector of 32; the kernel is named while it is traced."""
    _fill.set_name_prefix(f"fill_{count}", remove_cutlass_symbol=True, keep_mangled_name=False)
    _fill(a, cutlass.Int32(count)).launch(grid=(1, 1, 1), block=(32, 1, 1))


BIAS = 1.0


@cute.jit
def biased(a: cute.Tensor):
    """Fill a vector of 32 with what a global says."""
    _fill(a, cutlass.Float32(BIAS)).launch(grid=(1, 1, 1), block=(32, 1, 1))


class Scaled:
    """A callable object whose attributes are part of what is compiled."""

    def __init__(self, factor: float):
        self.factor = factor

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, stream: CUstream):
        """b = factor * a, of vectors of 128."""
        self.kernel(a, b).launch(grid=(1, 1, 1), block=(128, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, a: cute.Tensor, b: cute.Tensor):
        """Scale an element."""
        i = cute.arch.thread_idx()[0]
        b[i] = self.factor * a[i]
