"""Copies that several lanes issue at once, each counted at an mbarrier of its own: their races, and random programs.

Two threads, of one warp or of two, execute the same instructions with operands of their own, so that the copies of both
are one operation to the simulator. The oracle has no clocks: it takes the steps one after the other, as they are
executed, writes down events and the edges between them, and asks what can be reached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from cutepy.sim import Run
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_tma import aligned, tensor_map

PLACES, BOXES, BARRIERS, WORDS = 3, 3, 3, 32
"""Boxes of shared and of global memory, and mbarriers; words of a box."""
RACES = {"unordered-read", "unordered-write", "missing-proxy-fence", "unfenced-overwrite"}
LOAD = "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd5, {%r12}], [%r13];"
STORE = "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd6, {%r12}], [%r10];"


@dataclass(frozen=True)
class Step:
    """Instructions of one of both threads, or of both: operands are those of the first and of the second.

    "load" expects the bytes of a box of global memory at an mbarrier, and copies it to a place of shared memory;
    "store" copies a place to a box that nothing else touches; "wait" is for the last phase of an mbarrier that has
    completed, "group" for the stores' reads; "ld", "st" are of a place, "global" is a store to a box.
    """

    operation: str
    by: tuple[int, ...] = (0, 1)
    place: tuple[int, int] = (0, 1)
    box: tuple[int, int] = (0, 1)
    barrier: tuple[int, int] = (0, 1)


def steps():
    def pair(count):
        return st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))

    by = st.sampled_from([(0, 1), (0, 1), (0,), (1,)])
    often = ["load", "load", "wait", "wait", "wait", "ld", "st", "global", "store", "group", "fence", "fence", "meet"]
    made = st.builds(Step, st.sampled_from(often), by, pair(PLACES), pair(BOXES), pair(BARRIERS))
    # An mbarrier of one arrival takes the copy of one thread.
    return made.filter(lambda step: step.operation != "load" or len(step.by) == 1 or len({*step.barrier}) == 2)


class Oracle:
    """Events of a program, and what is before what; the second thread is by number."""

    def __init__(self, second: int) -> None:
        self.second = second
        self.before: list[set[int]] = []
        self.fences: list[int] = []
        self.last: list[int | None] = [None, None]
        self.phases = [0] * BARRIERS
        self.completed: list[list[list[int]]] = [[] for _ in range(BARRIERS)]
        self.open: list[list[int]] = [[], []]
        self.accesses: list[tuple[tuple[str, int], bool, bool, int, int, int]] = []
        self.race: int | None = None

    def event(self, *after: int | None) -> int:
        """Add an event after others; return its number."""
        found: set[int] = set()
        for one in after:
            if one is not None:
                found |= self.before[one] | {one}
        self.before.append(found)
        return len(self.before) - 1

    def by(self, thread: int, *after: int | None) -> int:
        """Add an event of a thread."""
        self.last[thread] = self.event(self.last[thread], *after)
        return self.last[thread]

    def access(self, n: int, what: tuple[str, int], writes: bool, is_async: bool, first: int, last: int) -> None:
        """Add an access of step n that lasts from one event to another, and see whether it races with others."""
        for other, wrote, was_async, _, end, before in self.accesses:
            # Of lanes of a warp that store to one place by one instruction, one does so last, whichever that is.
            of_warp = before == n and self.second < 32 and not (is_async or was_async)
            if other != what or not (writes or wrote) or of_warp:
                continue
            reached = self.before[first] | {first}
            ordered = end in reached
            if is_async and not was_async:
                ordered = any(f in reached and end in self.before[f] for f in self.fences)
            if not ordered and self.race is None:
                self.race = n
        self.accesses.append((what, writes, is_async, first, last, n))

    def take(self, n: int, step: Step) -> None:
        """Take a step of a program."""
        if step.operation == "meet":
            self.last = [self.event(*self.last)] * 2
        pending = []
        for t in step.by if step.operation != "meet" else ():
            shared, box = ("shared", step.place[t]), ("global", step.box[t])
            if step.operation in ("ld", "st", "global"):
                here = self.by(t)
                what = box if step.operation == "global" else shared
                pending.append((what, step.operation != "ld", False, here, here))
            elif step.operation == "load":
                issue, end = self.by(t), self.event()  # its end tells nobody of what its thread had done
                b = step.barrier[t]
                self.completed[b].append([issue, end])
                self.phases[b] += 1
                pending += [(box, False, True, issue, end), (shared, True, True, issue, end)]
            elif step.operation == "store":
                issue, end = self.by(t), self.event()
                self.open[t].append(end)
                pending.append((shared, False, True, issue, end))
            elif step.operation == "group":
                self.by(t, *self.open[t])
            elif step.operation == "fence":
                self.fences.append(self.by(t))
            elif step.operation == "wait":
                phases = self.completed[step.barrier[t]]
                # Its phases complete one after the other: of those before the last one the bytes have come, too.
                self.by(t, *(end for _, end in phases), *(phases[-1] if phases else ()))
        for each in pending:
            self.access(n, *each)


def ptx(n: int, step: Step, phases: list[int], second: int) -> str:
    """Return a step's instructions, by threads of which %p0 is the first, %p1 the second, and %p3 says which."""
    if step.operation == "meet":
        return "bar.sync 0;" if second == 32 else "bar.warp.sync -1;"
    parity = [phases[b] + 1 & 1 for b in step.barrier]
    values = {
        "%r10": [1024 + 4 * WORDS * p for p in step.place],
        "%r12": [WORDS * (2 * n + t if step.operation == "store" else step.box[t]) for t in (0, 1)],
        "%r13": [8 * b for b in step.barrier],
        "%r14": parity,
    }
    text = "".join(f"selp.u32 {name}, {b}, {a}, %p1;\n" for name, (a, b) in values.items())
    text += "add.u32 %r10, %r10, %r2; add.u32 %r13, %r13, %r2; mul.wide.u32 %rd8, %r12, 4; add.u64 %rd8, %rd8, %rd1;\n"
    guard = "%p2" if len(step.by) == 2 else f"%p{step.by[0]}"
    body = {
        "ld": "ld.shared.u32 %r8, [%r10]; add.u32 %r9, %r9, %r8;",
        "st": "st.shared.u32 [%r10], %r1;",
        "global": "st.global.u32 [%rd8], %r1;",
        "load": f"mbarrier.arrive.expect_tx.shared.b64 _, [%r13], {4 * WORDS}; {LOAD}",
        "store": f"{STORE} cp.async.bulk.commit_group;",
        "group": "cp.async.bulk.wait_group.read 0;",
        "fence": "fence.proxy.async;",
        "wait": f"AGAIN{n}: mbarrier.try_wait.parity.shared.b64 %p9, [%r13], %r14; @!%p9 bra AGAIN{n};",
    }[step.operation]
    return f"{text}@!{guard} bra PAST{n};\n{body}\nPAST{n}:"


def start(second: int) -> str:
    """Return PTX that fills all places, and makes the mbarriers."""
    makes = "".join(f"mbarrier.init.shared.b64 [%r2+{8 * b}], 1; " for b in range(BARRIERS))
    fills = "".join(f"st.shared.u32 [%r4+{1024 + 128 * place}], %r1; " for place in range(PLACES))
    return f"""mov.u32 %r1, %tid.x; mov.u32 %r2, smem; mov.u32 %r9, 0; ld.param.u64 %rd1, [p0];
mov.b64 %rd5, p1; cvta.param.u64 %rd5, %rd5; mov.b64 %rd6, p2; cvta.param.u64 %rd6, %rd6;
setp.eq.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r1, {second}; or.pred %p2, %p0, %p1; setp.lt.u32 %p8, %r1, 32;
shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r2;
@!%p8 bra FILLED; {fills} FILLED:
@!%p0 bra MADE; {makes} MADE:
fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;
"""


END = """ld.param.u64 %rd2, [p3]; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3; st.global.u32 [%rd2], %r9;
cp.async.bulk.wait_group 0;
"""


def reported(program: list[Step], second: int) -> int | None:
    """Return the first step that the sanitizer says races with one before it, or None."""
    run, oracle, texts = Run((), None, sanitize=True), Oracle(second), []
    for n, step in enumerate(program):
        texts.append(ptx(n, step, oracle.phases, second))
        oracle.take(n, step)
    source, target = aligned((1, BOXES * WORDS), "u4"), aligned((1, 2 * WORDS * (len(program) + 1)), "u4")
    for array in (source, target):
        run.adopt(array.base)
    maps = (tensor_map(array.reshape(-1), (WORDS,)) for array in (source, target))
    before = start(second)
    body = before + "\n".join(texts) + "\n" + END
    launch(
        body, source.reshape(-1), *maps, np.zeros(64, np.uint32),
        run=run, block=64 if second == 32 else 32, smem_bytes=1024 + 128 * PLACES,
    )  # fmt: skip
    lines = [n for n, text in enumerate(texts) for _ in text.split("\n")]
    first = before.count("\n") + 1
    found = [h.after.instruction.source.line - first for h in run.hazards if h.kind in RACES]
    return min((lines[line] for line in found), default=None)


def check(program: list[Step], second: int) -> None:
    """Compare the sanitizer with the oracle."""
    oracle = Oracle(second)
    for n, step in enumerate(program):
        oracle.take(n, step)
    assert reported(program, second) == oracle.race


BOTH = Step("load"), Step("wait"), Step("load")
OTHERS = Step("load"), Step("wait", barrier=(1, 0)), Step("load")


@pytest.mark.parametrize("second", [1, 32])
def test_each_copy_is_over_when_its_own_mbarrier_says_so(second):
    assert reported([*BOTH], second) is None
    assert reported([*OTHERS], second) == 2


@pytest.mark.parametrize("second", [1, 32])
def test_a_copy_has_read_global_memory_when_its_own_mbarrier_says_so(second):
    write = Step("global")
    assert reported([Step("load"), Step("wait"), write], second) is None
    assert reported([Step("load"), Step("wait", barrier=(1, 0)), write], second) == 2


@pytest.mark.parametrize("second", [1, 32])
def test_a_lane_fences_for_itself_alone(second):
    stores, loads = Step("st", by=(0,)), Step("load", by=(0,))
    assert reported([stores, Step("meet"), Step("fence", by=(1,)), loads], second) == 3
    assert reported([stores, Step("meet"), Step("fence", by=(1,)), Step("meet"), loads], second) is None


@pytest.mark.integration
@pytest.mark.parametrize("second", [1, 32])
@settings(max_examples=60, deadline=None)
@given(program=st.lists(steps(), min_size=2, max_size=12))
@example(program=[*BOTH])
@example(program=[*OTHERS])
def test_races_are_those_that_can_be_reached(second, program):
    check(program, second)
