"""Where values come from that bound loops: followed through sums, clamps and the loops around them."""

import pytest

from cutepy.sim.sanitize.certificate.any_rounds.loops import LeftInMemory
from cutepy.sim.sanitize.certificate.any_rounds.origins import Origins
from cutepy.sim.sanitize.certificate.dependence import Dependence
from cutepy.sim.translate import translate
from tests.sim.sanitize.certificate.test_steering import TEXT

ROUNDS = """mov.u32 %r9, 0; ld.global.u32 %r8, [%rd1];
OUTER: {}
INNER: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r2;
@%p1 bra INNER;
add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, %r8;
@%p2 bra OUTER;
"""
"""The inner loop goes around up to %r2."""
LOAD = "ld.global.u32 %r7, [%rd1+4];\n"
SMALL = "SMALL: add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 9;\n@%p4 bra SMALL;\n"


def of_text(body):
    code = Dependence(translate(TEXT.format(body=body), "kernel").flow)
    inner = next(loop for loop in code.loops if len(loop.blocks) == 1 and "%r2" in _texts(code, loop.head))
    return code, inner


def _texts(code, block):
    return " ".join(i.text for i in code.flow.blocks[block].instructions)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (LOAD + "add.u32 %r2, %r7, 5;", [(1, 5, "ld.global.u32")]),
        (LOAD + "add.u32 %r2, %r7, %r8;", [(1, 0, "add.u32")]),
        (LOAD + "mul.lo.u32 %r6, %r7, 3; sub.u32 %r2, %r6, 1;", [(3, -1, "ld.global.u32")]),
        ("add.u32 %r2, %r8, 5;", [(1, 5, "ld.global.u32")]),
        ("mov.u32 %r2, 7;", [(0, 7, "")]),
        ("add.u32 %r2, %r9, 5;", [(0, 0, "")]),
        (LOAD + SMALL + "add.u32 %r2, %r7, 5;", [(1, 0, "add.u32")]),
        (LOAD + "@%p3 bra NOT;\nld.global.u32 %r2, [%rd1];\nbra INNER;\nNOT: add.u32 %r2, %r7, 5;", None),
    ],
    ids=["sum", "two", "product", "from outside", "constant", "of constants", "another loop", "two ways"],
)
def test_a_bound_is_followed_to_what_makes_it_in_the_same_round_of_the_outer_loop(before, expected):
    code, inner = of_text(ROUNDS.format(before))
    inside = frozenset(i.index for block in inner.blocks for i in code.flow.blocks[block].instructions)
    bound = next(i for i in code.flow.blocks[inner.head].instructions if i.text.startswith("setp")).operands[2]
    makers = [
        i for i in code.instructions.values() if i.operands and i.operands[0] == bound and i.parts[0] not in ("setp",)
    ]
    found = Origins(code, code.loops).of(makers, inner.head, inside)
    names = {i.index: i.text.partition(" ")[0] for i in code.instructions.values()} | {-1: ""}
    assert (found and [(one.factor, one.offset, names[one.root]) for one in found]) == expected


@pytest.mark.parametrize(
    ("clamp", "least", "most"),
    [
        ("min.s32 %r2, %r8, 0xffffffff;", None, -1),
        ("max.s32 %r2, %r8, 7;", 7, None),
        ("min.s64 %rd2, %rd3, 0xffffffff;", None, 0xFFFFFFFF),
    ],
)
def test_a_clamp_is_a_number_of_its_type(clamp, least, most):
    code = Dependence(
        translate(TEXT.format(body=f"ld.global.u32 %r8, [%rd1]; ld.global.u64 %rd3, [%rd1]; {clamp}"), "kernel").flow
    )
    (i,) = (i for i in code.instructions.values() if i.text == clamp.rstrip(";"))
    (one,) = Origins(code, code.loops).of([i], 0, frozenset())
    assert (one.least, one.most) == (least, most)


WAIT = "bar.sync 0;\n"
POLL = "POLL: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0;\n@!%p4 bra POLL;\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ld.global.u32 %r2, [%rd1];\n", True),
        (f"ld.global.u32 %r2, [%rd1]; {WAIT}", True),
        (f"@%p3 bra NOT;\n{WAIT}ld.global.u32 %r2, [%rd1];\nNOT:", False),
        (f"@%p3 bra NOT;\nld.global.u32 %r2, [%rd1]; {WAIT}NOT:", True),
        (f"{WAIT}ld.global.u32 %r2, [%rd1];\n", True),
        (f"{POLL}ld.global.u32 %r2, [%rd1];\n", False),
    ],
    ids=["no wait", "before a wait", "after some have waited", "before some wait", "after all have", "after a poll"],
)
def test_what_is_loaded_is_constant_unless_only_some_have_waited_before(body, expected):
    code, inner = of_text(
        f"st.global.u32 [%rd1+64], %r1;\n{body}mov.u32 %r1, 0;\n"
        + ROUNDS.partition("{}")[2].partition("add.u32 %r9")[0]
    )
    (load,) = (i for i in code.instructions.values() if i.text.startswith("ld.global"))
    assert LeftInMemory(code).is_constant(load, inner.head) == expected
