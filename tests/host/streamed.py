"""A launch on a stream, under each annotation that says so, and under some that don't."""

from typing import TYPE_CHECKING, Annotated, Optional

import cutlass
import cutlass.cute as cute
from cuda.bindings import driver
from cuda.bindings.driver import CUstream

if TYPE_CHECKING:
    from cuda.bindings.driver import CUstream as Hidden

Alias = CUstream


@cute.kernel
def _fill(a: cute.Tensor):
    a[cute.arch.thread_idx()[0]] = cutlass.Float32(1.0)


@cute.jit
def plain(a: cute.Tensor, stream: CUstream):
    """As the DSL has it."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def optional(a: cute.Tensor, stream: Optional[CUstream]):  # noqa: UP045 - the spelling is what is tested
    """Without a default."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def union(a: cute.Tensor, stream: CUstream | None = None):
    """With a default."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def union_by_name(a: cute.Tensor, *, stream: CUstream | None = None):
    """By name only."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def text(a: cute.Tensor, stream: "driver.CUstream"):
    """As text."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def text_of_an_alias(a: cute.Tensor, stream: "Alias | None"):
    """As text in which the class has another name."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def annotated(a: cute.Tensor, stream: Annotated[CUstream, "of the launch"]):
    """With metadata."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


class Method:
    """A callable object."""

    @cute.jit
    def __call__(self, a: cute.Tensor, stream: "Alias | None" = None):
        """As text, of a method."""
        _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


def hidden(a: cute.Tensor, stream: "Hidden | CUstream"):
    """As text that type checkers alone can read; never compiled."""


@cute.jit
def bare(a: cute.Tensor, stream):
    """Without an annotation."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def bare_with_default(a: cute.Tensor, stream=None):
    """Without an annotation, and with a default."""
    if cutlass.const_expr(stream is None):
        _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1))
    else:
        _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def with_a_stream_for_default(a: cute.Tensor, stream=CUstream(0)):  # noqa: B008
    """As NVIDIA's examples have it."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def upstream(upstream, a: cute.Tensor):
    """With a parameter that is for no stream, whatever it is called."""
    _fill(a).launch(grid=(1, 1, 1), block=(32, 1, 1))
