"""Lines of inlined code have callers: breakpoints and errors know them."""

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest

import cutepy
from cutepy.sim import MemoryAccessError, Run

from .launching import launch

NESTED = """
.loc 1 30 4
.loc 1 20 2, function_name $L__info_string0, inlined_at 1 30 4
.loc 1 10 0, function_name $L__info_string1+16, inlined_at 1 20 2
mov.u32 %r1, 1;
add.u32 %r1, %r1, %r1;
.loc 1 31 0
mov.u32 %r2, 2;
.loc 1 10 0, function_name $L__info_string1+16, inlined_at 1 20 2
ld.global.u32 %r3, [%rd0+1024];
"""


def test_errors_name_the_callers_of_a_line():
    with pytest.raises(MemoryAccessError) as caught:
        launch(NESTED, [np.zeros(4, np.uint32)])
    lines = [line.strip() for line in str(caught.value).splitlines()]
    at = lines.index("at kernel.py:10")
    assert lines[at + 1 : at + 3] == ["called at kernel.py:20", "called at kernel.py:30"]


@pytest.mark.parametrize(("line", "hits"), [(10, 2), (20, 2), (30, 2), (31, 1), (11, 0)])
def test_breakpoints_at_a_line_or_at_what_called_it(line, hits, monkeypatch):
    original = Run.__init__

    def with_breakpoint(run, *args, **kwargs):
        original(run, *args, **kwargs)
        points.append(run.breakpoint(f"kernel.py:{line}", lambda step: None))

    points = []
    monkeypatch.setattr(Run, "__init__", with_breakpoint)
    launch(NESTED, [np.zeros(512, np.uint32)])
    assert points[0].hits == hits


def triple(a, i):
    a[i] = a[i] * 3 + 1


@cute.kernel
def twice_device(a: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    triple(a, i)
    cute.arch.sync_threads()
    for _ in cutlass.range(a[i], unroll=1):
        triple(a, 31 - i)
        cute.arch.sync_threads()


@cute.jit
def twice(a: cute.Tensor):
    twice_device(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


@pytest.mark.dsl
def test_the_lines_of_a_kernel_that_call_others():
    """Of the loop that runs once for a value of 1; the loop's own line is no caller of its body."""
    first = triple.__code__.co_firstlineno
    with cutepy.simulate() as run:
        hits = {n: run.breakpoint(f"test_callers.py:{first + n}", lambda step: None) for n in (1, 7, 10)}
        twice(np.zeros(32, np.int32))
    assert {n: point.hits for n, point in hits.items()}[1] >= 2
    assert hits[7].hits == 1
    assert hits[10].hits >= 1
    callers = {
        tuple(line.line - first for line in i.source.chain())
        for function in cutepy.sim.run.load_module(run.launches[0].ptx).functions.values()
        for i in function.instructions
        if i.parts[0] == "st"
    }
    assert callers == {(1, 7), (1, 10)}
