"""Operations whose kernels differ in the number of their threads, which tells what was chosen."""

import dataclasses

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
    variants = {
        "by_requires": [
            variant(64, cost="100"),
            variant(96, cost="1", requires=["n >= 100"]),
            variant(128, cost="1", requires=["n >= 100", "n >= 1000"]),
        ],
        "by_specs": [variant(64, cost="100"), variant(96, by_four, cost="1"), variant(128, aligned, cost="5")],
        "ties": [variant(64, aligned, cost="1"), variant(96), variant(128, aligned, cost="-1 if n > 500 else 0")],
        "strides": [variant(64, ROWS_BY_64, COMPACT), variant(96, ROWS, COMPACT, cost="1")],
        "none": [variant(64, requires=["n >= 100"]), variant(96, requires=["n < 50"], when="n != 7")],
        "no_stream": [aot.Variant(copy_on_no_stream, {"x": ANY, "out": ANY})],
    }
    return aot.Extension("chosen", [aot.Op(name, each, results=["out"]) for name, each in variants.items()])
