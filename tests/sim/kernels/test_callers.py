"""Lines of inlined code have callers: breakpoints and errors know them."""

from pathlib import Path

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import pipeline

import cutepy
import cutepy.device
import cutepy.kernels
from cutepy.device.pipeline import TmaRing
from cutepy.dsl.traced_names import SmemAllocator
from cutepy.sim import BreakpointError, DeadlockError, MemoryAccessError, Run
from cutepy.sim.inspect import breakpoints
from cutepy.sim.ptx import parse_module
from cutepy.sim.ptx.model import SourceLine
from cutepy.sim.ptx.source_lines import described, shortened, user_lines
from cutepy.sim.translate import load_module
from tests.messages import refuses

from .launching import NAMES, kernel_call, launch, ptx_module

NESTED = """
.loc 1 30 4
.loc 1 20 2, function_name $L__info_string0, inlined_at 1 30 4
.loc 1 10 0, function_name $L__info_string1+16, inlined_at 1 20 2
mov.u32 %r1, 1;
add.u32 %r1, %r1, %r1;
.loc 1 31 4
mov.u32 %r2, 2;
.loc 1 10 0, function_name $L__info_string1+16, inlined_at 1 20 2
ld.global.u32 %r3, [%rd0+1024];
"""


INLINE_ASSEMBLY = (
    """.target sm_90a
.file 1 "kernel.py"
.visible .entry k() {
.reg .b32 %r<9>;
.loc 1 30 4
.loc 1 20 2, function_name $L__info_string0, inlined_at 1 30 4
// begin inline asm
{
.loc 1 21 2, function_name $L__info_string0, inlined_at 1 30 4
mov.u32 %r1, 1;
.loc 1 22 2, function_name $L__info_string0, inlined_at 1 30 4
mov.u32 %r2, 1;
}
// end inline asm
.loc 1 31 4
ret;
}
"""
    + NAMES
)


def test_all_of_an_inline_assembly_is_of_the_line_that_has_it():
    """LLVM counts on from there, line by line of the assembly."""
    found = parse_module(INLINE_ASSEMBLY).functions["k"].instructions
    assert [str(i.source) for i in found] == ["kernel.py:20", "kernel.py:20", "kernel.py:31"]
    assert [str(i.source.caller) for i in found] == ["kernel.py:30", "kernel.py:30", "None"]
    assert [i.line for i in found] == [10, 12, 16]


def test_errors_name_a_line_and_what_it_calls():
    with pytest.raises(MemoryAccessError) as caught:
        launch(NESTED, [np.zeros(4, np.uint32)])
    lines = [line.strip() for line in str(caught.value).splitlines()]
    at = lines.index("at kernel.py:10")
    assert lines[at + 1 : at + 3] == ["called at kernel.py:20", "called at kernel.py:30"]


QUACK, ANOTHER = "lib/site-packages/quack/copy.py", "lib/dist-packages/another/kernel.py"
DSL = "lib/site-packages/nvidia_cutlass_dsl/python_packages/cutlass/utils/copy.py"
BLOCK, KERNEL = cutepy.device.__file__, cutepy.kernels.__file__


@pytest.mark.parametrize(
    ("chain", "users", "through"),
    [
        (["mine.py", QUACK], [0], None),
        ([QUACK, "mine.py"], [1], 0),
        ([BLOCK, "mine.py"], [1], 0),
        ([BLOCK, "helper.py", "mine.py"], [1, 2], 0),  # a module of the user's that calls blocks
        ([BLOCK, "mine.py", BLOCK, "mine.py"], [1, 3], 0),  # a worker that a scheduler of ours calls
        (["mine.py", BLOCK, "mine.py"], [0, 2], None),
        ([BLOCK, KERNEL, BLOCK, KERNEL], [1, 3], 0),
        ([DSL, QUACK, BLOCK, ANOTHER], [1, 3], 0),
        ([BLOCK, BLOCK], [0, 1], None),
        ([DSL, KERNEL, "mine.py"], [2], 0),
        ([], [], None),
    ],
)
def test_the_users_innermost_line_comes_first(chain, users, through):
    """A chain goes from the innermost line outwards."""
    source = None
    for n, file in reversed([*enumerate(chain)]):
        source = SourceLine(file, n, source)
    assert [line.line for line in user_lines(source)] == users
    said = [f"at {chain[n]}:{n}" for n in users[:1]] + [f"called at {chain[n]}:{n}" for n in users[1:]]
    said += [] if through is None else [f"through {chain[through]}:{through}"]
    assert described(source) == " ".join(said)


@pytest.mark.parametrize(("line", "hits"), [(10, 2), (20, 2), (30, 2), (31, 1), (11, 0)])
def test_breakpoints_at_a_line_or_at_what_called_it(line, hits, monkeypatch):
    original = Run.__init__

    def with_breakpoint(run, *args, **kwargs):
        original(run, *args, **kwargs)
        points.append(run.breakpoint(f"kernel.py:{line}", lambda step: None))

    points = []
    monkeypatch.setattr(Run, "__init__", with_breakpoint)
    monkeypatch.setattr(breakpoints, "_loaded_files", list)  # whose lines are not those of this PTX
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
        for function in load_module(run.launches[0].ptx).functions.values()
        for i in function.instructions
        if i.parts[0] == "st"
    }
    assert callers == {(1, 7), (1, 10)}


@cute.kernel
def out_of_bounds(a: cute.Tensor):
    triple(a, 1 << 20)


@cute.jit
def launch_out_of_bounds(a: cute.Tensor):
    out_of_bounds(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


@pytest.mark.dsl
@pytest.mark.parametrize("compiled", [False, True])
def test_errors_of_plain_and_of_compiled_functions_name_the_callers(compiled):
    a = np.zeros(32, np.int32)
    f = cutepy.compile(launch_out_of_bounds, a) if compiled else launch_out_of_bounds
    with cutepy.simulate(), pytest.raises(MemoryAccessError) as caught:
        f(a)
    first = Path(__file__).read_text().splitlines().index("    triple(a, 1 << 20)") + 1
    called = triple.__code__.co_firstlineno + 1
    assert f"  at {__file__}:{called}\n  called at {__file__}:{first}\n" in str(caught.value)


@cute.kernel
def waits_at_a_ring(a: cute.Tensor):
    allocator = SmemAllocator()
    ring = TmaRing(allocator.allocate_array(cutlass.Int64, 6), 3, 128, 1)
    if cute.arch.thread_idx()[0] == 0:
        ring.initialise()
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    state = ring.consumer_state()
    state.advance()
    ring.wait(state)
    a[0] = 1


@cute.kernel
def waits_at_a_pipeline(a: cute.Tensor):
    allocator = SmemAllocator()
    storage = allocator.allocate_array(cutlass.Int64, 4)
    loads = pipeline.PipelineTmaAsync.create(
        barrier_storage=storage,
        num_stages=2,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 32),
        tx_count=128,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 2)
    for _ in cutlass.range_constexpr(3):
        loads.producer_acquire(state)
        state.advance()
    a[0] = 1


@cute.kernel
def waits_at_its_own(a: cute.Tensor):
    done = SmemAllocator().allocate_array(cutlass.Int64, 1)
    if cute.arch.thread_idx()[0] == 0:
        cute.arch.mbarrier_init(done, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    cute.arch.mbarrier_wait(done, 0)
    a[0] = 1


@cute.jit
def launch_waiting(kernel: cutlass.Constexpr, a: cute.Tensor):
    kernel(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


@pytest.mark.dsl
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("kernel", "barrier", "through"),
    [
        (waits_at_a_ring, "mbarrier ring.full, stage 1 (0x8)", "pipeline.py"),
        (waits_at_a_pipeline, "mbarrier loads.empty, stage 0 (0x10)", ""),
        (waits_at_its_own, "mbarrier done (0x0)", ""),
    ],
)
def test_a_deadlock_names_the_barrier_and_the_users_line_first(kernel, barrier, through, compiled):
    a = np.zeros(32, np.int32)
    f = cutepy.compile(launch_waiting, kernel, a) if compiled else (lambda a: launch_waiting(kernel, a))
    with cutepy.simulate(), pytest.raises(DeadlockError) as caught:
        f(a)
    (waiting,) = caught.value.waiting
    assert f" of {barrier}, which is in phase" in waiting
    place = waiting.partition(f" at {shortened(__file__)}:")[2]
    assert place
    assert through in place


def simulate_with_breakpoint(where, body):
    with cutepy.simulate() as run:
        run.breakpoint(where, print)
        body()


def line_of(text: str) -> int:
    return Path(__file__).read_text().splitlines().index(text) + 1


@pytest.mark.dsl
def test_a_breakpoint_in_a_file_that_no_kernel_is_of_is_said_when_the_run_ends():
    a = np.zeros(32, np.int32)
    with refuses(BreakpointError):
        simulate_with_breakpoint("nofile.py:3", lambda: twice(a))
    assert a[0] == 4  # the run went to its end
    with refuses(BreakpointError):
        simulate_with_breakpoint("nofile.py:3", lambda: None)
    with refuses(KeyError):
        simulate_with_breakpoint("nofile.py:3", lambda: {}["mine"])


@pytest.mark.dsl
def test_a_breakpoint_at_a_line_without_code_is_said_at_once():
    blank = line_of("    a[i] = a[i] * 3 + 1") + 1
    with cutepy.simulate() as run, pytest.raises(BreakpointError) as refused:
        run.breakpoint(f"test_callers.py:{blank}", print)
    assert f"the nearest is at {__file__}:{blank - 1} and {__file__}:" in str(refused.value)


@pytest.mark.dsl
def test_a_breakpoint_at_a_line_of_no_launched_kernel_is_said_when_the_run_ends():
    line = line_of("    triple(a, 1 << 20)")
    with refuses(BreakpointError):
        simulate_with_breakpoint(f"test_callers.py:{line}", lambda: twice(np.zeros(32, np.int32)))


def test_a_line_that_is_not_reached_is_no_mistake():
    text = ptx_module("bra OVER;\n.loc 1 10 0\nmov.u32 %r1, 1;\nOVER:", 0).replace("kernel.py", "nested.py")
    run = Run((), None)
    point = run.breakpoint("nested.py:10", print)
    run.launch(kernel_call(text))
    run.check_breakpoints()
    assert point.hits == 0


def test_a_breakpoint_in_two_files_is_refused_by_the_launch():
    two = ".loc 1 10 0\nmov.u32 %r1, 1;\n.loc 2 10 0\nmov.u32 %r1, 2;\n"
    text = ptx_module(two, 0).replace('.file 1 "kernel.py"', '.file 1 "/a/nested.py"\n.file 2 "/b/nested.py"')
    call = kernel_call(text)
    run = Run((), None)
    run.breakpoint("nested.py:10", print)
    with refuses(BreakpointError):
        run.launch(call)
    run = Run((), None)
    point = run.breakpoint("a/nested.py:10", lambda step: None)
    run.launch(call)
    assert point.hits == 1


def test_lines_of_inline_assembly_are_those_of_who_wrote_it():
    """The compiler counts on, from the line of the call, for each line of the assembly's text."""
    text = """.target sm_90a
.file 1 "mine.py"
.visible .entry k() {
.reg .b32 %r<3>;
.loc 1 30 4
// begin inline asm
{
.loc 1 32 4
mov.u32 %r1, 1;
}
// end inline asm
.loc 1 31 4
mov.u32 %r2, 2;
}"""
    instructions = load_module(text).functions["k"].instructions
    assert [(i.source.line, i.line) for i in instructions] == [(30, 9), (31, 13)]
