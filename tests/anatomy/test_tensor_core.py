"""MMAs of the tensor core: shape from the instruction descriptor, operands from their words, in launches and in PTX."""

import numpy as np
import pytest

import cutepy
from cutepy.anatomy import Watch, explain
from cutepy.layouts.sm100 import InstrDescriptor, SmemDescriptor
from tests.sim.mechanisms.tensor_core import COLUMNS, LANES, MMA, run

WORD = int(InstrDescriptor("f16", 128, 64, a_dtype="bf16", b_major="MN"))
A = int(SmemDescriptor(0, 16, 1024, layout_type=2))
B = int(SmemDescriptor(16384, 2048, 1024, layout_type=2))


def explained():
    watch, before = Watch(), np.zeros((LANES, COLUMNS), np.uint32)
    image = np.zeros(32768, np.uint8)
    run(MMA.format("", "f16"), image, before, a=A, b=B, word=WORD, observers=[watch])
    return explain(watch, assembler=False)


def test_a_launch_tells_shape_types_majors_and_words():
    (kernel,) = explained().kernels
    (mma,) = kernel.mmas
    assert (mma.shape_mnk, mma.accumulator, mma.issued, mma.remark) == ((128, 64, 16), "f32", 1, "")
    assert (mma.a.dtype, mma.a.major, mma.a.swizzle, mma.a.lbo, mma.a.sbo) == ("bf16", "K", "SW128", 16, 1024)
    assert (mma.b.dtype, mma.b.major, mma.b.swizzle, mma.b.lbo) == ("bf16", "MN", "SW128", 2048)
    assert mma.b.start_addresses[0] - mma.a.start_addresses[0] == 16384


def test_the_map_of_shared_memory_names_the_tensor_core():
    (kernel,) = (explanation := explained()).kernels
    operands = [region.readers for region in kernel.regions if region.what == "operand of the tensor core"]
    assert {tuple(reader.split(" at ")[0] for reader in readers) for readers in operands} == {("tcgen05.mma",)}
    text = str(explanation)
    assert "operand of the tensor core" in text
    assert "tcgen05.mma at" in text


PTX = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u32 p) {{ .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p<2>;
ld.param.u32 %r0, [p]; setp.ne.u32 %p0, %r0, 0; mov.u32 %r1, {word};
mov.b64 %d0, {a}; mov.b64 %d1, {b};
tcgen05.mma.cta_group::{group}.kind::f16 [%r0], {of_a}, %d1, %r1, %p0;
ret; }}
"""


@pytest.mark.parametrize("group", [1, 2])
def test_ptx_alone_tells_constant_words(group):
    (kernel,) = explain(PTX.format(word=WORD, a=A, b=B, group=group, of_a="%d0"), assembler=False).kernels
    (mma,) = kernel.mmas
    assert mma.shape_mnk == (128, 64, 16)
    assert (mma.a.shape_mn_k, mma.b.shape_mn_k) == ((128 // group, 16), (64 // group, 16))
    assert (mma.a.descriptors, mma.b.descriptors) == ((A,), (B,))


def test_a_sparse_a_has_half_of_k():
    word = int(InstrDescriptor("f16", 128, 64, a_dtype="bf16", sparse=True))
    text = (
        PTX.format(word=word, a=A, b=B, group=1, of_a="%d0")
        .replace("mma.cta", "mma.sp.cta")
        .replace("%d1, %r1", "%d1, [%r0], %r1")
    )
    (kernel,) = explain(text, assembler=False).kernels
    (mma,) = kernel.mmas
    assert (mma.shape_mnk, mma.a.shape_mn_k, mma.b.shape_mn_k) == ((128, 64, 32), (128, 16), (64, 32))


def test_a_in_tensor_memory_has_no_descriptor():
    (kernel,) = explain(PTX.format(word=WORD, a=A, b=B, group=1, of_a="[%r0]"), assembler=False).kernels
    (mma,) = kernel.mmas
    assert (mma.a.source, mma.a.descriptors) == ("tensor memory", ())


@pytest.mark.parametrize(
    ("word", "remark"), [("%r0", "its instruction descriptor is known at launch"), (str(WORD | 1 << 29), "no field")]
)
def test_an_mma_without_a_known_shape_says_why(word, remark):
    (kernel,) = explain(PTX.format(word=word, a=A, b=B, group=1, of_a="%d0"), assembler=False).kernels
    (mma,) = kernel.mmas
    assert mma.shape_mnk is None
    assert remark in mma.remark


def test_the_map_of_tensor_memory_tells_who_allocates_writes_and_reads():
    explanation = explained()
    ((allocation,),) = [kernel.allocations for kernel in explanation.kernels]
    assert (allocation.columns, allocation.ctas, allocation.threads, len(allocation.freed)) == (512, 1, "warp 0", 1)
    assert [(part.first, part.columns, part.what) for part in allocation.parts] == [
        (0, 64, "accumulator"),
        (64, 448, "data"),
    ]
    for part in allocation.parts:
        assert part.lanes == ((0, 127),)
        assert [who.split(" at")[0] for who in part.readers] == ["tcgen05.ld 32x32b.x8"]
        assert {who.rpartition(", ")[2] for who in part.readers} == {"by warps 0-3"}
    written = [[who.split(" at")[0] for who in part.writers] for part in allocation.parts]
    assert written == [["tcgen05.st 32x32b.x8", "tcgen05.mma"], ["tcgen05.st 32x32b.x8"]]
    text = explanation.text(200)
    assert "512 columns of 128 lanes" in text
    assert "columns 0-63  lanes 0-127  accumulator" in text
    assert explanation.json()["kernels"][0]["allocations"][0]["parts"][0]["lanes"] == [[0, 127]]


def test_copies_and_operands_in_tensor_memory_have_their_names():
    watch, image = Watch(), np.zeros(32768, np.uint8)
    word = int(InstrDescriptor("f16", 64, 32, a_dtype="bf16"))
    both = "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r7], %d9; add.u32 %r30, %r7, 64;"
    instruction = both + " tcgen05.mma.cta_group::1.kind::f16 [%r30], [%r7], %d9, %r20, %p3;"
    run(instruction, image, np.zeros((LANES, COLUMNS), np.uint32), b=B, word=word, observers=[watch])
    ((allocation,),) = [kernel.allocations for kernel in explain(watch, assembler=False).kernels]
    halves, others = ((0, 15), (32, 47), (64, 79), (96, 111)), ((16, 31), (48, 63), (80, 95), (112, 127))
    found = [(part.first, part.columns, part.lanes, part.what) for part in allocation.parts]
    assert found[:2] == [(0, 4, halves, "operand A"), (0, 4, others, "data")]
    assert (64, 32, halves, "accumulator") in found
    for part in allocation.parts[:2]:
        assert part.writers[-1].startswith("tcgen05.cp 32x128b.warpx4 at")
    assert allocation.parts[0].readers[0].startswith("tcgen05.mma at")


def test_an_accumulator_that_another_mma_reads_is_its_operand_too():
    watch, image = Watch(), np.zeros(32768, np.uint8)
    word = int(InstrDescriptor("f16", 128, 32, a_dtype="bf16"))
    instruction = (
        "tcgen05.mma.cta_group::1.kind::f16 [%r7], %d8, %d9, %r20, %p3; add.u32 %r30, %r7, 64;"
        "tcgen05.mma.cta_group::1.kind::f16 [%r30], [%r7], %d9, %r20, %p3;"
    )
    run(instruction, image, np.zeros((LANES, COLUMNS), np.uint32), a=A, b=B, word=word, observers=[watch])
    ((allocation,),) = [kernel.allocations for kernel in explain(watch, assembler=False).kernels]
    found = [(part.first, part.columns, part.what) for part in allocation.parts[:3]]
    assert found == [(0, 8, "accumulator, operand A"), (8, 24, "accumulator"), (32, 32, "data")]


def test_columns_that_nobody_accesses_are_told():
    ptx = """.version 8.8 .target sm_100a .address_size 64
    .visible .entry k() .reqntid 32 { .reg .b32 %r<4>; .shared .align 4 .b32 base; mov.u32 %r0, base;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 64; ld.shared.u32 %r1, [base];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 64; ret; }"""
    watch = Watch()
    with cutepy.simulate(observers=[watch], arch="sm_100a"):
        cutepy.load_ptx(ptx).launch("k", 1, 32)
    (launched,), (read,) = explain(watch, assembler=False).kernels, explain(ptx, assembler=False).kernels
    (part,) = launched.allocations[0].parts
    assert (part.first, part.columns, part.what) == (0, 64, "not accessed")
    assert (read.allocations[0].columns, read.allocations[0].parts) == (64, ())
    assert "who writes and reads it is known at launch" in str(explain(ptx, assembler=False))


def test_a_kernel_without_tensor_memory_has_no_map():
    (kernel,) = explain(".version 8.8 .target sm_100a .entry k() { ret; }", assembler=False).kernels
    assert kernel.allocations == ()
    assert "Tensor memory" not in str(explain(".version 8.8 .target sm_100a .entry k() { ret; }", assembler=False))
