"""Regions of branches and loops as machine code, against numpy's execution: values, counts and errors."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cutepy.sim import translate
from cutepy.sim.native import function, memory_state
from cutepy.sim.native.nodes import Nodes
from cutepy.sim.native.regions import _headers, regions
from cutepy.sim.translate.control_flow import EXIT
from tests.messages import pins
from tests.sim.kernels.launching import ptx_module
from tests.sim.native.programs import LOAD, TEMPLATES, filled, inputs, same

pytest.importorskip("cutlass")

pytestmark = pytest.mark.dsl

_ATOMICS = [f"{op}.u32" for op in ("add", "min", "max")] + [f"{op}.b32" for op in ("and", "or", "xor")]
_ORDERED = ["add.u32", "inc.u32", "dec.u32", "exch.b32", "max.s32", "cas.b32"]


class _Body:
    """Statements with nested branches, loops, early exits, shared memory, shuffles and votes."""

    def __init__(self, rng, whole_warps):
        self.rng, self.labels, self.whole = rng, 0, whole_warps
        # Operations of one kind, whose order does not matter.
        self.atomic = _ATOMICS[rng.integers(len(_ATOMICS))]
        # Lanes that leave early would wait at another barrier, or not at all.
        self.meets = rng.random() < 0.5
        self.lines = []

    def label(self):
        self.labels += 1
        return f"L{self.labels}"

    def condition(self):
        p, r = self.rng.integers(4), self.rng.integers(8)
        bit = 1 << int(self.rng.integers(8))
        # Of the CTA alone, of the warp, or of lanes.
        value = ["%r20", "%r26", f"%r{r}", f"%r{r}"][self.rng.integers(4)]
        self.lines.append(f"and.b32 %r34, {value}, {bit}; setp.ne.u32 %p{p}, %r34, 0;")
        return f"@{'!' * int(self.rng.integers(2))}%p{p}"

    def statements(self, depth, count):
        for _ in range(count):
            self.statement(depth)

    def statement(self, depth):
        if depth == 3 and self.meets and self.rng.random() < 0.3:
            self.barrier()
        kind = self.rng.integers(12)
        if kind < 5 or (depth == 0 and kind < 9):
            self.lines.append(filled(TEMPLATES[self.rng.integers(len(TEMPLATES))], self.rng))
        elif kind < 7:
            self.branch(depth)
        elif kind < 9:
            self.loop(depth)
        elif kind == 9:
            self.memory()
        elif kind == 10:
            r, s = self.rng.integers(8, size=2)
            operation = _ATOMICS[0]
            self.lines.append(
                f"and.b32 %r35, %r{r}, 60; add.u32 %r35, %r35, %r40; red.shared.{operation} [%r35], %r{s};"
            )
        else:
            self.exchange(depth)

    def barrier(self):
        """All threads meet, once or in a loop that goes on for as long for all of a CTA; each reads another's word."""
        r, label = self.rng.integers(8), self.label()
        self.lines.append("and.b32 %r45, %r20, 1;")
        self.lines.append(f"{label}: st.shared.u32 [%r36], %r{r}; bar.sync 0; sub.u32 %r46, 0, %r22;")
        self.lines.append("add.u32 %r46, %r46, %r21; sub.u32 %r46, %r46, 1; mad.lo.u32 %r46, %r46, 16, %r40;")
        self.lines.append(f"ld.shared.u32 %r{r}, [%r46+64]; bar.sync 0;")
        self.lines.append(f"setp.eq.u32 %p5, %r45, 0; sub.u32 %r45, %r45, 1; @!%p5 bra {label};")

    def branch(self, depth):
        other, end = self.label(), self.label()
        self.lines.append(f"{self.condition()} bra {other};")
        self.statements(depth - 1, self.rng.integers(1, 4))
        if not self.meets and self.rng.random() < 0.1:
            self.lines.append(f"{self.condition()} bra FINISH;")
        self.lines.append(f"bra {end};\n{other}:")
        self.statements(depth - 1, self.rng.integers(0, 3))
        self.lines.append(f"{end}:")

    def loop(self, depth):
        start, end, counter = self.label(), self.label(), f"%r{41 + depth}"
        r = self.rng.integers(8)
        self.lines.append(f"and.b32 {counter}, %r{r}, 3;\n{start}:")
        self.statements(depth - 1, self.rng.integers(1, 4))
        if self.rng.random() < 0.5:
            self.lines.append(f"{self.condition()} bra {end};")
        self.lines.append(f"setp.eq.u32 %p5, {counter}, 0; sub.u32 {counter}, {counter}, 1; @!%p5 bra {start};")
        self.lines.append(f"{end}:")

    def memory(self):
        """Each thread has 16 bytes of its own."""
        r = self.rng.integers(8)
        guard = f"{self.condition()} " if self.rng.random() < 0.3 else ""
        at = 4 * int(self.rng.integers(4))
        line = ["ld.shared.u32 %r{r}, [%r36+{at}];", "st.shared.u32 [%r36+{at}], %r{r};"][self.rng.integers(2)]
        self.lines.append(guard + line.format(r=r, at=at))

    def exchange(self, depth):
        if not self.whole or depth < 3:
            return
        r, s, p = self.rng.integers(8), self.rng.integers(8), self.rng.integers(4)
        mode = ["up", "down", "bfly", "idx"][self.rng.integers(4)]
        by, clamp = self.rng.integers(32), ["0", "31", "0x1807", "0x1c03"][self.rng.integers(4)]
        self.lines.append(
            [
                f"shfl.sync.{mode}.b32 %r{r}|%p{p}, %r{s}, {by}, {clamp}, -1;",
                f"shfl.sync.{mode}.b32 %r{r}, %r{s}, %r{r}, {clamp}, -1;",
                f"vote.sync.ballot.b32 %r{r}, %p{p}, -1;",
                f"vote.sync.any.pred %p{p}, %p{p}, -1;",
                f"vote.sync.all.pred %p{p}, %p{p}, -1;",
                f"vote.sync.uni.pred %p{p}, %p{p}, -1;",
                f"redux.sync.add.u32 %r{r}, %r{s}, -1;",
                f"redux.sync.min.s32 %r{r}, %r{s}, -1;",
                f"match.all.sync.b32 %r{r}|%p{p}, %r{s}, -1;",
                f"elect.sync %r{r}|%p{p}, -1;",
                f"activemask.b32 %r{r};",
            ][self.rng.integers(11)]
        )


def _program(rng, threads, size):
    body = _Body(rng, threads % 32 == 0)
    body.lines.append(LOAD)
    body.lines.append("mov.u32 %r40, smem; shr.u32 %r26, %r22, 5; mul.lo.u32 %r36, %r22, 16; add.u32 %r36, %r36, %r40;")
    body.lines.append("add.u32 %r36, %r36, 64;")
    for n in range(8):
        where = ["%rd6", "%rd0"][rng.integers(2)]
        body.lines.append(f"ld.global.u32 %r{n}, [{where}+{4 * n}]; ld.global.f32 %f{n}, [%rd6+{4 * n}];")
        if n < 4:
            body.lines.append(f"cvt.u64.u32 %rd2{n}, %r{n}; setp.lt.u32 %p{n}, %r{n}, 0x40000000;")
            body.lines.append(f"cvt.u16.u32 %h{n}, %r{n};")
    body.statements(3, size)
    body.lines.append("FINISH: bar.sync 0; add.u64 %rd10, %rd1, %rd5;")
    body.lines.append("and.b32 %r35, %r22, 15; mad.lo.u32 %r35, %r35, 4, %r40; ld.shared.u32 %r37, [%r35];")
    for register in [f"%r{n}" for n in range(8)] + ["%r37"]:
        body.lines.append(f"st.global.u32 [%rd10], {register}; add.u64 %rd10, %rd10, %rd7;")
    for n in range(8):
        body.lines.append(f"st.global.f32 [%rd10], %f{n}; add.u64 %rd10, %rd10, %rd7;")
    return "\n".join(body.lines)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), block=st.sampled_from([7, 32, 40, 64]), grid=st.integers(1, 3))
def test_random_programs_with_branches_and_loops(patched, seed, block, grid):
    rng = np.random.default_rng(seed)
    program = _program(rng, block, 8)
    arrays = [inputs(rng, block * grid), np.zeros(17 * block * grid, np.uint32)]
    same(patched, program, arrays, gives_up=True, block=(block, 1, 1), grid=(grid, 1, 1), smem=64 + 16 * block)


_BEFORE, _ATOMIC, _AFTER = "add.u32 %r1, %r0, 1;", "atom.shared.add.u32 %r2, [%r1], 1;", "add.u32 %r3, %r2, %r3;"


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (f"{_BEFORE} {_ATOMIC} {_AFTER}", True),
        (f"{_BEFORE} {_ATOMIC} LOOP: {_AFTER} setp.lt.u32 %p0, %r3, 9; @%p0 bra LOOP;", True),
        (f"LOOP: {_BEFORE} {_ATOMIC} {_AFTER} setp.lt.u32 %p0, %r3, 9; @%p0 bra LOOP;", False),
        (f"LOOP: {_BEFORE} {_ATOMIC} setp.lt.u32 %p0, %r1, 9; @%p0 bra LOOP;", True),
        (f"{_BEFORE} ld.relaxed.gpu.shared.u32 %r2, [%r1]; {_AFTER}", True),
        ("LOOP: ld.volatile.shared.u32 %r3, [%r1]; setp.lt.u32 %p0, %r3, 9; @%p0 bra LOOP;", False),
    ],
)
def test_what_could_tell_the_order_of_warps_is_in_no_loop_of_a_region(body, whole):
    program = translate.Kernel(ptx_module(f"{body} st.shared.u32 [%r1], %r3;", 0), "k").program()
    assert any(region.end == EXIT for region in regions(Nodes(program), 0, EXIT)) == whole


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("operation", _ORDERED)
def test_atomic_operations_that_return_what_was_there(patched, operation, space):
    """Lanes take their turns in order, in whole warps and in parts of them."""
    at = "%rd3" if space == "global" else "%r5"
    more = ", %r6" if operation.startswith("cas") else ""
    body = f"""
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 45, %r0; mul.wide.u32 %rd2, %r2, 4;
    and.b32 %r3, %r0, 3; mul.wide.u32 %rd3, %r3, 4; add.u64 %rd3, %rd3, %rd0; mov.u32 %r4, smem;
    mad.lo.u32 %r5, %r3, 4, %r4; mul.lo.u32 %r6, %r0, 7; and.b32 %r7, %r0, 12; mov.u32 %r8, -1;
    setp.eq.u32 %p0, %r7, 4; @%p0 bra END;
    atom.{space}.{operation} %r8, [{at}], %r7{more};
    END: bar.sync 0; add.u64 %rd4, %rd1, %rd2; st.global.u32 [%rd4], %r8;
    ld.shared.u32 %r9, [%r5]; st.global.u32 [%rd4+360], %r9;
    """
    arrays = [np.arange(4, dtype=np.uint32), np.zeros(180, np.uint32)]
    same(patched, body, arrays, block=(45, 1, 1), grid=(2, 1, 1), smem=16)


def test_what_fails_late_is_undone(patched):
    """Stores, of rows, of scattered lanes and by atomic operations, before an access that fails in one warp."""
    body = """
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; mov.u32 %r1, smem; mov.u32 %r3, 3;
    LOOP: xor.b32 %r2, %r0, 5; mul.wide.u32 %rd4, %r2, 4; add.u64 %rd5, %rd0, %rd4;
    ld.global.u32 %r4, [%rd3]; add.u32 %r4, %r4, %r2; st.global.u32 [%rd3], %r4; st.global.u16 [%rd5], %r3;
    red.global.add.u32 [%rd0], %r3; red.shared.add.u32 [%r1], %r3; sub.u32 %r3, %r3, 1;
    setp.ne.u32 %p0, %r3, 0; @%p0 bra LOOP;
    shr.u32 %r5, %r0, 5; mul.lo.u32 %r5, %r5, 1024; cvt.u64.u32 %rd6, %r5; add.u64 %rd7, %rd3, %rd6;
    st.global.u32 [%rd7], %r4;
    """
    _, found, runs = same(patched, body, [np.zeros(64, np.uint32)], False, block=(64, 1, 1), smem=16)
    pins(found)
    assert runs[False]


def test_loops_without_end_are_left_to_numpy(patched):
    with patched.context() as inner:
        inner.setattr(function, "_PATIENCE", 1000)
        body = "mov.u32 %r0, %tid.x; LOOP: xor.b32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 100; @%p0 bra LOOP;"
        _, found, runs = same(patched, body, [np.zeros(4, np.uint32)], False)
    assert "deadlock" in found.lower()
    assert runs[False]


def test_a_log_that_is_full_is_replaced_by_a_copy(patched):
    body = """
    mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 7; mov.u32 %r2, smem; mad.lo.u32 %r3, %r1, 4, %r2; mov.u32 %r4, 0;
    LOOP: mov.u32 %r5, 0;
    INNER: red.shared.add.u32 [%r3], %r0; add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 50; @%p0 bra INNER;
    bar.sync 0; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 3; @%p1 bra LOOP;
    ld.shared.u32 %r6, [%r3]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r6;
    """
    with patched.context() as inner:
        inner.setattr(memory_state, "_LOG_BYTES", 20_000)
        made = memory_state.MemoryState.begin
        kept = []
        inner.setattr(memory_state.MemoryState, "begin", lambda self, whole: (kept.append(whole), made(self, whole)))
        same(patched, body, [np.zeros(64, np.uint32)], block=(64, 1, 1), smem=32)
    assert kept == [False, True]


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.integers(0, n), max_size=2), min_size=n, max_size=n)))
def test_headers_are_where_a_walk_comes_back_to_what_it_has_not_left(successors):
    """Successors of nodes 0, 1 ..., of which the last lies outside; beside a walk by calls of one function."""
    found, seen, numbers = set(), set(), frozenset(range(len(successors)))

    def walk(number, above):
        seen.add(number)
        for successor in successors[number]:
            if successor in {*above, number}:
                found.add(successor)
            elif successor in numbers and successor not in seen:
                walk(successor, {*above, number})

    walk(0, set())
    nodes = SimpleNamespace(all=[SimpleNamespace(successors=one) for one in successors])
    assert _headers(nodes, 0, numbers) == found
