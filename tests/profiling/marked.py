"""A kernel with ranges of its own."""

from contextlib import nullcontext

import cutlass
import cutlass.cute as cute

from cutepy.device import mark


def unmarked(name, argument=0):
    """Stand for `mark` in a source without ranges."""
    return nullcontext()


@cute.kernel
def _kernel(x: cute.Tensor):
    thread = cute.arch.thread_idx()[0]
    place = thread + 64 * cute.arch.block_idx()[0]
    with mark("load"):
        value = x[place]
    total = cutlass.Int32(0)
    for i in cutlass.range(3):
        with mark("loop", i):
            if thread < 32:
                with mark("inner", i + 7):
                    total = total + i
    with mark("store"):
        x[place] = value + total


@cute.jit
def marked(x: cute.Tensor):
    """Add up numbers, in the first warp of each CTA."""
    _kernel(x).launch(grid=(2, 1, 1), block=(64, 1, 1))
