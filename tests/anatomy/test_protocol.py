"""Steps of a kernel's protocol, read from its PTX."""

import pytest

from cutepy.anatomy import protocol

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 global_smem[];
.visible .entry k(.param .align 8 .b8 k_param_0[24])
{
	.reg .b16 	%h<3>;
	.reg .b32 	%r<100>;
	.reg .b64 	%rd<50>;
	.reg .pred 	%p<10>;
"""
KERNEL = (
    HEAD
    + """
	mov.u32 	%r1, global_smem;
	mov.u32 	%r9, %tid.x;
	shr.u32 	%r2, %r9, 7;
	shl.b32 	%r3, %r2, 13;
	add.s32 	%r4, %r1, %r3;
	shr.u32 	%r5, %r4, 4;
	and.b32 	%r6, %r5, 16320;
	cvt.u64.u32 	%rd1, %r6;
	or.b64 	%rd2, %rd1, 4611686293305360384;
	mov.b64 	{%r7, %r8}, %rd2;
	mov.b32 	%r40, 12;
	mov.b32 	%r41, 1;
	mbarrier.init.shared.b64 	[%r1+64], 1;
	mbarrier.init.shared::cta.b64 	[%r1+72], %r40;
$L__BB0_1:
	mad.lo.s32 	%r10, %r11, 1024, %r7;
	add.s32 	%r12, %r10, 6;
	mov.b64 	%rd3, {%r12, %r8};
	mov.b32 	%r13, 1073741952;
	mov.b64 	%rd4, {%r10, %r13};
	selp.b32 	%r11, 0, %r14, %p1;
	wgmma.fence.sync.aligned;
	// begin inline asm
	{
.reg .pred p;
setp.ne.b32 p, %r40, 0;
wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27},
    %rd3, %rd4, p, 1, 1, 0, 1;
}
	// end inline asm
	setp.ne.b32 %p3, %r41, 0;
	wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%r20, %r21, %r22, %r23}, %rd4, %rd3, %p3, 1, 1;
	@%p2 bra 	$L__BB0_1;
	ret;
}
"""
)


def test_mmas_and_their_descriptors():
    first, second = protocol.wgmmas(KERNEL)
    assert first.shape_mnk == (64, 16, 16)
    assert first.types == ("f32", "bf16", "bf16")
    assert first.transpose == (0, 1)
    assert first.accumulators == 8
    assert first.descriptors == (0x4000004000010006, 0x4000008000010000)
    assert second.shape_mnk == (64, 8, 32)
    assert second.types == ("f32", "e4m3", "e5m2")
    assert second.transpose == (0, 0), "8-bit types have no transpose immediates"
    assert second.descriptors == first.descriptors[1:] + first.descriptors[:1]


def test_places_in_the_source_change_nothing():
    """A line of source may stand before each instruction, also within inline assembly."""
    lines = []
    for n, line in enumerate(KERNEL.removeprefix(HEAD).splitlines()):
        is_whole = line.endswith(";") and (not lines or lines[-1].endswith((";", "{", "}", ":")) or not lines[-1])
        lines.append(f"\t.loc\t1 {n} 8\n{line}" if is_whole else line)
    located = HEAD.replace(".extern", '.file 1 "kernel.py"\n.extern') + "\n".join(lines)
    zeros = ("mov.b32 \t%r40, 12;", "mov.b32 \t%r40, 0;")
    assert protocol.wgmmas(located) == protocol.wgmmas(KERNEL)
    assert [mma.accumulate for mma in protocol.wgmmas(located.replace(*zeros))] == [False, True]
    assert protocol.steps(located) == protocol.steps(KERNEL)
    assert protocol.mbarrier_counts(located) == protocol.mbarrier_counts(KERNEL)
    assert protocol.opcodes(located) == protocol.opcodes(KERNEL)


def test_a_threads_own_offsets_are_in_its_descriptors():
    """Warpgroup 1 starts 8192 bytes further on, which is 512 in a descriptor."""
    assert [mma.descriptors[0] & 0xFFFF for mma in protocol.wgmmas(KERNEL, thread=128)] == [0x206, 0x200]


def test_a_changed_constant_changes_the_descriptor():
    changed = KERNEL.replace("4611686293305360384", str(4611686293305360384 + (1 << 32)))
    assert protocol.wgmmas(changed)[0].descriptors[0] == 0x4000004100010006


def test_barrier_counts():
    assert protocol.mbarrier_counts(KERNEL) == [1, 12]


def test_opcodes():
    count = protocol.opcodes(KERNEL)
    assert count["wgmma.fence.sync.aligned"] == 1
    assert count["wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16"] == 1
    assert count["bra"] == 1
    assert count["mov.b64"] == 3


STEPS = (
    HEAD
    + """
	mov.u32 	%r1, global_smem;
	mov.b32 	%r2, 0;
	mov.b32 	%r3, 1;
	mbarrier.init.shared.b64 	[%r1+64], 12;
	fence.mbarrier_init.release.cluster;
	bar.sync 	0;
$L__BB0_1:
	shl.b32 	%r4, %r2, 3;
	add.s32 	%r5, %r1, %r4;
	{
	LAB_WAIT:
	mbarrier.try_wait.parity.shared.b64 %p8, [%r5+64], %r3, 10000000;
	@%p8 bra.uni DONE;
	bra.uni LAB_WAIT;
	DONE:
	}
	@%p9 mbarrier.arrive.expect_tx.shared.b64 %rd46, [%r5], 256;
	cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r5+1024], [%rd1, {%r2, %r3}], [%r5];
	add.s32 	%r6, %r2, 1;
	setp.eq.b32 	%p1, %r6, 4;
	selp.b32 	%r2, 0, %r6, %p1;
	selp.b32 	%r7, 1, 0, %p1;
	xor.b32 	%r3, %r3, %r7;
	@%p2 bra 	$L__BB0_1;
	mapa.shared::cluster.u32 	%r8, %r5, %r9;
	mbarrier.arrive.shared::cluster.b64 _, [%r8+8], %r3;
	bar.sync 	1, 256;
	cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd2, {%r6, %r3}], [%r1+512];
	cp.async.bulk.wait_group.read 	2;
}
"""
)


def test_steps_are_read_as_they_first_run():
    assert [(name, *operands) for name, operands in protocol.steps(STEPS)] == [
        ("mbarrier.init", 64, 12),
        ("fence.mbarrier_init",),
        ("bar.sync", 0),
        ("mbarrier.try_wait.parity", 64, 1),
        ("mbarrier.arrive.expect_tx", 0, 256),
        ("cp.async.bulk.tensor.2d.shared", 1024, 0, 1, 0),
        ("mbarrier.arrive", 8),
        ("bar.sync", 1, 256),
        ("cp.async.bulk.tensor.2d.global", 1, 1, 512),
        ("cp.async.bulk.wait_group.read", 2),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mov.b32 %r2, -1;", 2**32 - 1),
        ("mad.lo.s32 %r2, 65536, 65536, 7;", 7),
        ("ld.global.u32 %r2, [%rd1];", 0),
        ("mov.b32 %r2, %r99;", 0),
    ],
)
def test_a_register_holds_its_first_value_or_0_where_that_is_not_known(text, value):
    assert protocol.steps(f"{HEAD}\t{text}\n\tbar.arrive %r2, 64;\n\tbar.sync %r2, 64;\n}}") == [
        ("bar.arrive", (value, 64)),
        ("bar.sync", (value, 64)),
    ]


def test_operands_that_matter_are_told():
    """Of each instruction of a protocol those that say which barrier, how many, or for how many to wait."""
    text = (
        HEAD
        + """
	barrier.sync 	3, 128;
	barrier.sync.aligned 	2, 64;
	wgmma.wait_group.sync.aligned 	1;
	setmaxnreg.inc.sync.aligned.u32 	232;
	setmaxnreg.dec.sync.aligned.u32 	40;
	cp.async.bulk.wait_group 	3;
}
"""
    )
    assert [(name, *operands) for name, operands in protocol.steps(text)] == [
        ("barrier.sync", 3, 128),
        ("barrier.sync", 2, 64),
        ("wgmma.wait_group", 1),
        ("setmaxnreg.inc", 232),
        ("setmaxnreg.dec", 40),
        ("cp.async.bulk.wait_group", 3),
    ]


def test_the_first_thread_counts():
    """Counts may be computed from the thread; those of thread 0 are told."""
    text = HEAD + "mov.u32 %r1, %tid.x; add.s32 %r2, %r1, 5; mbarrier.init.shared.b64 [%r9], %r2; }"
    assert protocol.mbarrier_counts(text) == [5]


def test_a_comparison_chooses():
    changed = STEPS.replace("%r6, 4;", "%r6, 1;")
    assert protocol.steps(changed.replace("\n}\n", "\nbar.sync %r7, %r6;\n}\n"))[-1] == ("bar.sync", (1, 1))
    assert protocol.steps(STEPS.replace("\n}\n", "\nbar.sync %r7, %r6;\n}\n"))[-1] == ("bar.sync", (0, 1))


def test_scale_d_says_whether_an_mma_accumulates():
    assert [mma.accumulate for mma in protocol.wgmmas(KERNEL)] == [True, True]
    overwriting = protocol.wgmmas(KERNEL.replace("mov.b32 	%r40, 12;", "mov.b32 	%r40, 0;"))
    assert [mma.accumulate for mma in overwriting] == [False, True]
