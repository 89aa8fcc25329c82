"""Moves into registers of MMAs in flight: an H100 loses them, unless nobody reads what was moved."""

import pytest

from cutepy.sim.sanitize.registers import groups_left, register_hazards
from cutepy.sim.translate import Kernel

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 d)
{
.reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 %rd<5>; .reg .pred %p<9>;
ld.param.u64 %rd3, [d];
mov.u32 %r1, %tid.x; mov.u32 %r9, 0; mov.f32 %f10, 0f00000000;
ld.global.u32 %r8, [%rd3]; ld.global.f32 %f9, [%rd3+4]; setp.eq.u32 %p1, %r8, 5; setp.ne.u32 %p2, %r9, 0;
"""
ZERO = "mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, %f10; mov.f32 %f4, %f10;\n"
FENCE, COMMIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
ONE, NONE = "wgmma.wait_group.sync.aligned 1;\n", "wgmma.wait_group.sync.aligned 0;\n"
END = "st.global.f32 [%rd3], %f1;\nret;\n}\n"
IN_FLIGHT = ["accumulator-in-flight"]


def mma(sums="%f1, %f2, %f3, %f4", a="%rd1", scale="1"):
    """Return an MMA, and the end of its group."""
    end = "0" if a.startswith("{") else "0, 0"
    kind = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    return f"{FENCE}{kind} {{{sums}}}, {a}, %rd2, {scale}, 1, 1, {end};\n{COMMIT}"


def loop(body, *, before=ZERO, after=NONE):
    """Return a kernel whose main loop has a body."""
    again = "add.u32 %r7, %r7, 1; setp.lt.u32 %p5, %r7, 9; @%p5 bra L;\n"
    return f"{HEAD}{before}mov.u32 %r7, 0;\nL:\n{body}{again}{after}{END}"


def kinds(text):
    """Return what is wrong with the registers of a kernel."""
    return sorted({hazard.kind for hazard in register_hazards(Kernel(text, "kernel").flow)})


GUARDED = "@%p1 mov.f32 %f1, 0f42C80000;\n"
BRANCH = "@!%p1 bra NO;\n{}NO:\n"
NAMES = [f"mov.f32 %f{n + 10}, %f{n};\n" for n in (1, 2, 3, 4)]
BACK = [f"mov.f32 %f{n}, %f{n + 10};\n" for n in (1, 2, 3, 4)]
NAMED = mma("%f11, %f12, %f13, %f14")
"""Sums of MMAs whose names on the way around the loop are others, as compilers write them."""
OTHERWISE = "".join(("@%p1 bra P;\n", *BACK, "bra.uni J;\nP:\n", "{}", *BACK[1:], "J:\n"))


@pytest.mark.parametrize(
    "body",
    [
        mma() + ONE + GUARDED,
        mma() + ONE + BRANCH.format("mov.f32 %f1, 0f42C80000;\n"),
        mma() + ONE + BRANCH.format(ZERO),
        mma() + ONE + "mov.f32 %f2, 0f42C80000;\n",
        mma() + ONE + BRANCH.format("mov.f32 %f1, %f9;\n"),
        mma() + ONE + BRANCH.format("ld.global.f32 %f1, [%rd3];\n"),
        "".join((*NAMES, NAMED, ONE, *BACK, GUARDED)),
        "".join((*NAMES, NAMED, ONE, OTHERWISE.format("mov.f32 %f1, 0f42C80000;\n"))),
        "".join((*NAMES, NAMED, ONE, OTHERWISE.format("mov.f32 %f1, %f9;\n"))),
        "".join((*NAMES, NAMED, ONE, OTHERWISE.format("ld.global.f32 %f1, [%rd3];\n"))),
        "".join((*NAMES, NAMED, ONE, OTHERWISE.format("mov.f32 %f1, 0f42C80000;\n"), NONE)),
    ],
    ids=range(11),
)
def test_what_is_moved_to_where_an_mma_will_write_is_lost(body):
    """On an H100 in 200 launches of 200: the first of these, as sums of 64x8 and of 64x64 (2026-11-24)."""
    assert kinds(loop(body)) == IN_FLIGHT
    assert kinds(loop(body.replace(ONE, NONE))) == []


def test_a_wait_after_a_move_is_too_late():
    moved = "mov.f32 %f2, 0f42C80000;\n"
    assert kinds(loop(mma() + GUARDED + NONE)) == IN_FLIGHT
    assert kinds(loop(mma() + moved + NONE + "st.global.f32 [%rd3], %f2;\n")) == IN_FLIGHT
    assert kinds(loop(mma() + ONE + moved.replace("%f2", "%f5") + NONE + "mov.f32 %f2, %f5;\n")) == []


@pytest.mark.parametrize("scale", ["0", "%p2", "!%p3"])
def test_zeros_that_no_mma_reads_are_no_matter(scale):
    """Sums are zeroed for the next tile, whose first MMA begins them anew."""
    begins = "setp.eq.s32 %p3, %r9, 0;\n" + mma(scale=scale)
    assert kinds(loop(mma() + ONE + ZERO + begins)) == []
    assert kinds(loop(mma() + ONE + ZERO + "st.global.f32 [%rd3], %f2;\n" + begins)) == IN_FLIGHT
    assert kinds(loop(mma() + ONE + ZERO + begins.replace(scale + ", 1, 1", "%p1, 1, 1"))) == IN_FLIGHT


def test_zeros_before_a_loop_are_no_matter_nor_those_after_the_fence():
    assert kinds(loop(mma() + ONE)) == []
    assert kinds(loop("".join((*NAMES, NAMED, ONE, *BACK)))) == []
    assert kinds(f"{HEAD}{FENCE}{ZERO}{mma().removeprefix(FENCE)}{NONE}{END}") == []


@pytest.mark.parametrize(
    ("before", "found"),
    [
        (ZERO, []),
        ("mov.f32 %f3, %f9;\n" + ZERO, []),
        (ZERO + "@%p1 mov.f32 %f3, %f9;\n", ["missing-wgmma-fence"]),
        (ZERO + BRANCH.format("mov.f32 %f3, %f9;\n"), ["missing-wgmma-fence"]),
        (ZERO + "mov.f32 %f3, %f9;\n", ["missing-wgmma-fence"]),
    ],
)
def test_a_constant_may_be_read_where_a_sum_begins_with_it(before, found):
    """Scale-d and a sum that begins anew share the register of one zero, as LLVM writes MMAs whose sums it drops."""
    read = "setp.ne.f32 %p3, %f3, 0f00000000;\n"
    assert kinds(HEAD + FENCE + before + read + mma(scale="%p3").removeprefix(FENCE) + NONE + END) == found


def test_sums_of_the_next_tile_may_have_registers_of_their_own():
    """An unrolled loop zeroes the sums that it comes to next, while those before them are in flight."""
    others = "%f5, %f6, %f7, %f8"
    zeros = "".join(f"mov.f32 %f{n}, 0f00000000; " for n in (5, 6, 7, 8))
    text = loop(ZERO + mma() + zeros + mma(others) + ONE + "st.global.f32 [%rd3], %f1;\n" + NONE)
    assert kinds(text) == []


A = "{%r11, %r12, %r13, %r14}"


@pytest.mark.parametrize(
    ("before", "move", "found"),
    [
        ("mov.b32 %r11, 7; ", "@%p1 mov.b32 %r11, 0;\n", ["fragment-in-flight"]),
        ("mov.b32 %r11, %r8; ", "mov.b32 %r11, 0;\n", ["fragment-in-flight"]),
        ("mov.b32 %r11, 0; ", "mov.b32 %r11, 0;\n", []),  # the same constant again
    ],
)
def test_constants_are_not_to_be_moved_into_a_fragment_in_flight(before, move, found):
    before += "mov.b32 %r12, 0; mov.b32 %r13, 0; mov.b32 %r14, 0;\n"
    assert kinds(loop(mma(a=A) + ONE + move, before=ZERO + before)) == found
    assert kinds(loop(mma(a=A) + NONE + move, before=ZERO + before)) == []


@pytest.mark.parametrize(("one", "found"), [("4294967295", IN_FLIGHT), ("4294967294", [])])
def test_constants_are_compared_in_their_bits(one, found):
    """Scale-d is 1 if -1 is what it is compared with: the MMA then adds to the zero, which another one overwrites."""
    scale = f"mov.u32 %r11, -1; mov.u32 %r12, {one}; setp.eq.u32 %p6, %r11, %r12;\n"
    text = HEAD + ZERO + scale + mma() + "mov.f32 %f1, 0f00000000;\n" + mma(scale="%p6") + NONE + END
    assert kinds(text) == found


@pytest.mark.parametrize(
    ("wait", "commit", "left"), [(ONE, COMMIT, [1]), ("", COMMIT, [None]), (ONE, "", [None]), (NONE, COMMIT, [])]
)
def test_the_wait_is_known_that_leaves_an_mma_in_flight(wait, commit, left):
    """None leaves one that was not committed."""
    found = register_hazards(Kernel(HEAD + ZERO + mma().replace(COMMIT, commit) + wait + END, "kernel").flow)
    assert [None if hazard.left_by is None else groups_left(hazard.left_by) for hazard in found] == left


def test_before_an_mma_of_another_shape_the_last_write_lacks_a_fence():
    """An MMA uses registers as sums of another shape than the MMA before did, whose values have been replaced since."""
    adds = "".join(f"add.f32 %f{n}, %f{n}, %f9;\n" for n in range(1, 5))
    wide = mma(", ".join(f"%f{n}" for n in range(1, 9))).replace("m64n8k16", "m64n16k16").removeprefix(FENCE)
    for between, opcodes in ((adds, ["add.f32"]), ("", ["wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"])):
        text = HEAD + ZERO + mma() + NONE + between + wide + NONE + END
        found = register_hazards(Kernel(text, "kernel").flow)
        assert {hazard.kind for hazard in found} == {"missing-wgmma-fence"}
        assert sorted({hazard.before.opcode for hazard in found if hazard.before is not None}) == opcodes
    assert kinds(HEAD + ZERO + mma() + NONE + adds + FENCE + wide + NONE + END) == []
