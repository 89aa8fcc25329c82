"""Steps of blocks: every instruction counts once, copies are taken in turn, moved code counts where it is."""

import pytest

from cutepy.binaries.machine_code import read_code
from cutepy.binaries.ptxas import assemble
from cutepy.predict import gpu_named
from cutepy.predict.code import FMA, LSU, XU, block_steps, kind_of
from cutepy.sim.translate import Kernel
from tests.predict.kernels import HEAD, ring
from tests.predict.test_known_times import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "has tools")

LOOP = f"""{HEAD}.visible .entry loop(.param .u64 x, .param .u32 n)
{{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<2>; .reg .f32 %f<4>;
    ld.param.u64 %d0, [x]; ld.param.u32 %r0, [n]; mov.u32 %r1, 0; mov.f32 %f0, 0f00000000;
LOOP:
    ld.volatile.global.f32 %f1, [%d0];
    fma.rn.f32 %f0, %f0, %f1, %f1;
    ex2.approx.f32 %f0, %f0;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, %r0; @%p bra LOOP;
    st.global.f32 [%d0], %f0;
    ret;
}}
"""

PIPED = f"""{HEAD}.visible .entry piped(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %d<2>;
    ld.param.u64 %d0, [x]; mov.u32 %r0, %tid.x;
    OPERATION
    st.global.u32 [%d0], %r1;
    ret;
}}
"""


def steps(text, name):
    code = read_code(assemble(text).image, name)
    program = Kernel(text, name).program(frozenset(), frozenset())
    factual = {i.index for block in program.flow.blocks for i in block.instructions if i.traits.is_access}
    return code, program.flow.blocks, block_steps(program.flow.blocks, code, factual, gpu_named("h200"))


def test_an_unrolled_loop_has_variants_with_one_load_each():
    code, blocks, found = steps(LOOP, "loop")
    number = next(n for n, block in enumerate(blocks) if any(i.parts[0] == "ex2" for i in block.instructions))
    loads = sum(i.verb == "LDG" for i in code)
    assert loads > 1
    assert 1 < len(found[number]) <= loads
    assert all(sum(step.action is not None for step in variant) == 1 for variant in found[number])
    work = sum(work for variant in found[number] for step in variant for pipe, work in step.pipes if pipe == XU)
    assert work == pytest.approx(len(found[number]) * gpu_named("h200").at("instr.interval", "ex2"))


@pytest.mark.parametrize(
    ("operation", "pipe", "name", "share"),
    [
        ("shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;", LSU, "shfl", 4),  # one unit of the SM serves its four schedulers
        ("mul.hi.u32 %r1, %r0, 0x9E3779B9;", FMA, "imad_wide", 1),  # the high half of a product of 64 bits
    ],
)
def test_an_instruction_takes_its_pipe_for_the_measured_interval(operation, pipe, name, share):
    _, _, found = steps(PIPED.replace("OPERATION", operation), "piped")
    work = sum(work for (variant,) in found for step in variant for number, work in step.pipes if number == pipe)
    assert work == pytest.approx(gpu_named("h200").at("instr.interval", name) / share, abs=2.5 * (pipe == FMA))


def test_no_instruction_is_counted_twice():
    code, _, found = steps(ring(4, 8), "ring")
    assert sum(step.slots for variants in found for variant in variants for step in variant) <= len(code)


def test_every_access_is_an_action_of_its_block():
    _, blocks, found = steps(ring(4, 8), "ring")
    for block, variants in zip(blocks, found, strict=True):
        wanted = {i.index for i in block.instructions if i.traits.is_access}
        for variant in variants:
            assert {step.action.number for step in variant if step.action is not None} == wanted


def test_classes_of_accesses_are_those_of_the_constants():
    code = read_code(assemble(LOOP).image, "loop")
    assert {kind_of(i) for i in code if i.verb in ("LDG", "STG")} == {"ldg32", "stg32"}
