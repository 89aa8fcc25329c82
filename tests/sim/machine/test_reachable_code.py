"""Instructions that lanes may still execute, and will, against an interpreter of random programs, lane by lane."""

import random

import numpy as np
import pytest

from cutepy.sim.machine.group import Join, Return, Roster
from cutepy.sim.machine.lanes import Residents
from cutepy.sim.machine.reachable_code import ReachableCode
from cutepy.sim.ptx.model import registers_in
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.translate.control_flow import analyse

LANES, REGISTERS = 6, 4
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.func called(.reg .b32 %a) { bar.sync 1, 64; st.shared.u32 [%a+900], 1; ret; }
.visible .entry k(.param .u64 x) {
.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<4>; ld.param.u64 %rd0, [x]; mov.u32 %r0, %tid.x;
"""


class Writer:
    """Draws programs: of copies and sums, conditions on registers or on what memory holds, loops, and marks."""

    def __init__(self, seed, is_known):
        self.draw, self.is_known, self.marks, self.labels = random.Random(seed), is_known, 0, 0

    def block(self, depth):
        kinds = ["set", "add", "copy", "mark", "mark", "if"] + ["load", "loop"] * (not self.is_known)
        return [self.statement(self.draw.choice(kinds), depth) for _ in range(self.draw.randint(1, 4))]

    def statement(self, kind, depth):
        draw, register = self.draw, lambda: self.draw.randint(1, REGISTERS)
        if kind in ("if", "loop") and depth == 0:
            kind = "mark"
        if kind == "set":
            return "set", register(), draw.randint(0, 3)
        if kind == "add":
            return "add", register(), draw.randint(0, REGISTERS), draw.randint(0, 2)
        if kind == "copy":
            return "add", register(), draw.randint(0, REGISTERS), 0
        if kind == "load":
            return "load", register()
        if kind == "mark":
            self.marks += 1
            return "mark", self.marks, draw.randint(0, REGISTERS), draw.choice(("", "if", "unless")), register()
        if kind == "if":
            return "if", draw.randint(0, REGISTERS), draw.randint(0, 3), self.block(depth - 1), self.block(depth - 1)
        return "loop", draw.randint(1, 3), self.block(depth - 1)

    def text(self, program, depth=0):
        lines = []
        for kind, *what in program:
            self.labels += 1
            n = self.labels
            if kind == "set":
                lines.append("mov.u32 %r{}, {};".format(*what))
            elif kind == "add":
                lines.append("add.u32 %r{}, %r{}, {};".format(*what))
            elif kind == "load":
                lines.append("ld.global.u32 %r{}, [%rd0];".format(*what))
            elif kind == "mark":
                number, base, guard, by = what
                prefix = {"": "", "if": "@%p1 ", "unless": "@!%p1 "}[guard]
                lines += [f"setp.gt.u32 %p1, %r{by}, 1;"] * bool(guard)
                lines.append(f"{prefix}st.shared.u32 [%r{base}+{16 * number - 64}], 1;")
            elif kind == "if":
                register, bound, then, other = what
                lines += [f"setp.le.u32 %p2, %r{register}, {bound};", f"@!%p2 bra ELSE{n};", self.text(then, depth)]
                lines += [f"bra ON{n};", f"ELSE{n}:", self.text(other, depth), f"ON{n}:"]
            else:
                times, body = what
                counter = f"%r{16 + depth}"
                lines += [f"mov.u32 {counter}, 0;", f"AGAIN{n}:", self.text(body, depth + 1)]
                lines += [f"add.u32 {counter}, {counter}, 1; and.b32 %r30, %r0, 1; add.u32 %r30, %r30, {times};"]
                lines += [f"setp.lt.u32 %p3, {counter}, %r30; @%p3 bra AGAIN{n};"]
        return "\n".join(lines)


def executed(program, registers, lane, draw, found):
    """Run a program for a lane: the addresses of each mark that it comes to."""
    for kind, *what in program:
        if kind == "set":
            registers[what[0]] = what[1]
        elif kind == "add":
            registers[what[0]] = registers[what[1]] + what[2]
        elif kind == "load":
            registers[what[0]] = draw.randint(0, 3)
        elif kind == "mark":
            number, base, guard, by = what
            if not guard or (registers[by] > 1) == (guard == "if"):
                found.setdefault(number, set()).add((registers[base] + 16 * number - 64) % 2**64)
        elif kind == "if":
            register, bound, then, other = what
            executed(then if registers[register] <= bound else other, registers, lane, draw, found)
        else:
            for _ in range(max(1, what[0] + lane % 2)):
                executed(what[1], registers, lane, draw, found)


def prospects_of(text, values, calls=(), inherited=(), **options):
    """Return the marks that lanes may execute from `bar.sync` on, by number, with all that is said of each."""
    function = parse_module(HEAD + text + "\nret;\n}").functions["k"]
    flow = analyse(function, lambda i: i.traits.waits, lambda i: bool(i.traits.effects))
    roster = Roster(flow, (LANES, 1, 1))
    roster.start(Residents((1, 1, 1), (1, 1, 1), np.arange(1)), [None] * len(function.registers))
    (g,) = roster.groups
    for depth in calls:
        g.join = Join(0, roster.group(0, [None] * len(function.registers), g.ctas, g.threads, g.join), depth)
    g.block = next(n for n, b in enumerate(flow.blocks) if b.instructions and b.instructions[0].parts[0] == "bar")
    named = {r.name: r.index for i in function.instructions for x in i.operands for r in registers_in(x)}
    for name, value in values.items():
        if name in named:
            (g.join.parent if name in inherited else g).registers[named[name]] = value
    found = ReachableCode(flow, g, **{"is_at_block": True} | options)
    return found, [one for one in found.those(lambda i: i.parts[0] == "st")]


def number_of(one):
    return (one.instruction.operands[0].offset + 64) // 16


STARTS = {f"%r{n}": np.array([[n]] if n % 2 else [range(n, n + LANES)], np.uint32) for n in range(REGISTERS + 1)}
STARTS["%r0"] = np.arange(LANES, dtype=np.uint32)[None, :]


def check(seed, is_known):
    writer = Writer(seed, is_known)
    program = writer.block(2)
    found, marks = prospects_of("bar.sync 0;\n" + writer.text(program), STARTS)
    assert found.is_complete
    told = {number_of(one): one for one in marks}
    assert len(told) == len(marks)
    for lane in range(LANES):
        done = {}
        first = {n: int(np.broadcast_to(STARTS[f"%r{n}"], (1, LANES))[0, lane]) for n in range(REGISTERS + 1)}
        executed(program, first, lane, random.Random(seed + lane), done)
        assert done.keys() <= told.keys()
        for number, one in told.items():
            assert one.may[0, lane] >= (number in done) >= one.will[0, lane]
            if one.address is not None and number in done:
                assert done[number] == {int(np.broadcast_to(one.address, (1, LANES))[0, lane])}
            if is_known:
                assert one.may[0, lane] == one.will[0, lane] == (number in done)
                assert one.address is not None


@pytest.mark.parametrize("seed", range(50))
def test_what_lanes_execute_is_known_where_all_values_are(seed):
    check(seed, is_known=True)


@pytest.mark.parametrize("seed", range(50))
def test_lanes_execute_nothing_else_and_all_that_is_sure(seed):
    check(seed, is_known=False)


MARK = "bar.sync 0; st.shared.u32 [%r1+16], 1;"


def test_nothing_is_known_of_registers_within_a_block():
    for is_at_block in (True, False):
        _, (one,) = prospects_of(MARK, STARTS, is_at_block=is_at_block)
        assert (one.address is not None) == is_at_block
        assert one.will.all()


def test_a_guarded_instruction_changes_registers_of_the_lanes_whose_guard_holds():
    guarded = "setp.lt.u32 %p1, {}, 2; @!%p1 add.u32 %r1, %r1, 32;" + MARK[len("bar.sync 0;") :]
    _, (one,) = prospects_of("bar.sync 0; " + guarded.format("%r0"), STARTS)
    assert one.address.tolist() == [[17] * 2 + [49] * (LANES - 2)]
    _, (one,) = prospects_of("bar.sync 0; " + guarded.format("%r9"), STARTS)  # of which nothing is known
    assert one.address is None


def test_what_a_group_left_alone_is_as_in_the_group_that_it_parted_from():
    for inherited in ((), ("%r1",)):
        _, (one,) = prospects_of(MARK, STARTS, calls=[None], inherited=inherited)
        assert one.address.tolist() == [[17]]


@pytest.mark.parametrize(
    ("body", "calls", "is_complete"),
    [
        (MARK, [], True),
        (MARK, [None], True),
        (MARK, [Return(0, print)], False),
        (MARK, [Return(0, print), None], False),
        (MARK + " call called, (%r1);", [], False),
        ("bar.sync 0; call called, (%r1);", [], False),
        ("bar.sync 0; call.uni called, (%r1);", [], False),
        ("bar.sync 0; exit; call called, (%r1);", [], True),
    ],
)
def test_where_functions_are_called_or_returned_from_something_is_left_out(body, calls, is_complete):
    found, _ = prospects_of(body, STARTS, calls=calls)
    assert found.is_complete == is_complete


def test_only_the_mask_of_a_copy_to_several_ctas_is_told():
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{} [%r1], [%rd0], 16, [%r2]{};"
    for multicast, mask, expected in ((".multicast::cluster", ", %rs1", [[5]]), ("", "", None)):
        text = ".reg .b16 %rs<2>; bar.sync 0; mov.u16 %rs1, 5; " + copy.format(multicast, mask)
        found, _ = prospects_of(text, STARTS)
        (one,) = found.those(lambda i: i.parts[0] == "cp")
        assert (None if one.mask is None else one.mask.tolist()) == expected
        assert one.address.tolist() == [[2, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize("known", ["%r0", "%r9"])
@pytest.mark.parametrize("negated", ["", "!"])
@pytest.mark.parametrize("kind", ["st.shared.u32 [%r1], 1", "or.b32 %r1, %r1, 1"])
def test_guarded_instructions_of_a_block_that_may_be_passed_by_are_not_sure(known, negated, kind):
    """Whatever the guard says: that needs the lanes to come there. Stores with a guard are blocks of their own."""
    text = f"""bar.sync 0; setp.lt.u32 %p1, {known}, 2; setp.lt.u32 %p2, %r9, 1; @%p2 bra ON;
    @{negated}%p1 {kind}; {kind};
    ON: @{negated}%p1 {kind}; {kind};"""
    found, _ = prospects_of(text, STARTS)
    marks = [*found.those(lambda i: i.parts[0] == kind[:2])]
    guard = (np.arange(LANES) < 2) ^ bool(negated) if known == "%r0" else None
    every, none = [True] * LANES, [False] * LANES
    may, will = (every, none) if guard is None else (guard.tolist(), guard.tolist())
    assert [(one.may[0].tolist(), one.will[0].tolist()) for one in marks] == [
        (may, none),
        (every, none),
        (may, will),
        (every, every),
    ]
