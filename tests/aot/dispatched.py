"""Operations whose kernels differ in the number of their threads, which tells what was chosen."""

import dataclasses

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

from cutepy import TensorSpec, aot


@cute.kernel
def copy_kernel(x: cute.Tensor, out: cute.Tensor):
    """Copy the first elements."""
    tidx, _, _ = cute.arch.thread_idx()
    if tidx < cute.size(x):
        out[tidx] = x[tidx]


@dataclasses.dataclass(frozen=True)
class Copy:
    """Copies with some number of threads."""

    threads: int

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor, stream: CUstream):
        """Launch it."""
        copy_kernel(x, out).launch(grid=(1, 1, 1), block=(self.threads, 1, 1), stream=stream)


@cute.jit
def copy_on_no_stream(x: cute.Tensor, out: cute.Tensor):
    """Launch it on no stream."""
    copy_kernel(x, out).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def count_kernel(x: cute.Tensor, first: cutlass.Int32):
    """Write numbers that follow each other."""
    tidx, _, _ = cute.arch.thread_idx()
    if tidx < cute.size(x):
        x[tidx] = (first + tidx).to(cutlass.Float32)


@cute.jit
def count(x: cute.Tensor, first: cutlass.Int32, stream: CUstream):
    """Launch it."""
    count_kernel(x, first).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


def counting():
    """Describe it: an operation whose number has 32 bits."""
    return aot.Op("count", [aot.Variant(count, {"x": ANY, "first": 0})], mutates=["x"])


ANY = TensorSpec("float32", ("n",), align=4)
COMPACT = TensorSpec("float32", ("m", "n"))
ROWS = TensorSpec("float32", ("m", "n"), strides=("ld", 1), align=4)
ROWS_BY_64 = TensorSpec("float32", ("m", "n"), strides=("ld", 1), divisibility={"ld": 64})


def variant(threads, x=ANY, out=ANY, **rules):
    """Make a variant with a number of threads."""
    return aot.Variant(Copy(threads), {"x": x, "out": out}, label=f"t{threads}", **rules)


def described():
    """Give the operations."""
    aligned = TensorSpec("float32", ("n",), align=16)
    by_four = TensorSpec("float32", ("n",), divisibility={"n": 4}, align=4)
    by_six = TensorSpec("float32", ("n",), divisibility={"n": 6}, align=4)
    hundred, thousand = (lambda n: n >= 100), (lambda n: n >= 1000)
    variants = {
        "by_requires": [
            variant(64, cost=lambda: 100),
            variant(96, cost=lambda: 1, requires=[hundred]),
            variant(128, cost=lambda: 1, requires=[hundred, thousand]),
        ],
        "by_specs": [
            variant(64, cost=lambda: 100),
            variant(96, by_four, cost=lambda: 1),
            variant(128, aligned, cost=lambda: 5),
        ],
        "by_both": [variant(64, cost=lambda: 1), variant(96, by_four, by_six)],
        "ties": [
            variant(64, aligned, cost=lambda: 1),
            variant(96),
            variant(128, aligned, cost=lambda n: -1 if n > 500 else 0),
        ],
        "strides": [variant(64, ROWS_BY_64, COMPACT), variant(96, ROWS, COMPACT, cost=lambda: 1)],
        "none": [variant(64, requires=[hundred]), variant(96, requires=[lambda n: n < 50, lambda n: n != 7])],
        "no_stream": [aot.Variant(copy_on_no_stream, {"x": ANY, "out": ANY})],
    }
    return aot.Extension("chosen", [aot.Op(name, each, results=["out"]) for name, each in variants.items()])
