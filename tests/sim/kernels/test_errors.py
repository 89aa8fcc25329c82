"""Errors of a kernel name the line of Python and the thread."""

from dataclasses import replace

import numpy as np
import pytest

from cutepy.sim import (
    BarrierError,
    DeadlockError,
    DescriptorError,
    LaunchError,
    MemoryAccessError,
    Run,
    SimulationError,
    TrapError,
)
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses

from .launching import kernel_call, launch, ptx_module

OUT = np.zeros(64, "u4")


def fails(error, body, arrays=None, **options):
    """Launch on memory of zeros, or on arrays, and return the error."""
    with refuses(error) as caught:
        launch(body, (np.zeros_like(OUT),) if arrays is None else arrays, **options)
    return caught.value


def test_global_out_of_bounds_names_lane_address_and_line():
    body = "mov.u32 %r1, %tid.x; mad.wide.u32 %rd1, %r1, 16, %rd0;\n.loc 1 42 3\nst.global.u32 [%rd1], %r1;"
    error = fails(MemoryAccessError, body)
    assert error.instruction.opcode == "st.global.u32"


def test_unknown_memory_is_never_touched():
    fails(MemoryAccessError, "ld.global.u32 %r1, [%rd0];", known=False)


def test_misaligned_access():
    fails(MemoryAccessError, "ld.global.u32 %r1, [%rd0+2];")


def test_shared_out_of_bounds():
    body = "mov.u32 %r1, smem; st.shared.u32 [%r1+1024], %r1;"
    fails(MemoryAccessError, body, smem=1024)


def test_unknown_instruction_is_refused_as_the_text_is_read():
    body = ".loc 1 9 0\nfrobnicate.u32 %r1, %r2;"
    for text in body, f"bra OVER; {body} OVER:":
        assert fails(PtxSyntaxError, text).statement.startswith("frobnicate")


def test_trap():
    fails(TrapError, ".loc 1 5 0\ntrap;")


def test_a_trap_says_what_was_printed_before_it():
    body = """.global .align 1 .b8 text[4] = {110, 111, 33, 0};
    .param .b64 param0; .param .b64 param1; .param .b32 result; mov.b64 %rd1, text;
    cvta.global.u64 %rd1, %rd1; st.param.b64 [param0], %rd1; st.param.b64 [param1], %rd1;
    call.uni (result), vprintf, (param0, param1); trap;"""
    launched = ptx_module(body.partition(";")[2], 0).replace(".visible", f"{body.partition(';')[0]};\n.visible", 1)
    with refuses(TrapError):
        Run((), None).launch(kernel_call(launched))


def test_a_failed_assertion():
    texts = {"said": b"x < 5", "file": b"kernel.cu", "name": b"k"}
    declared = "".join(
        f".global .align 1 .b8 {name}[{len(text) + 1}] = {{{', '.join(map(str, text))}, 0}};\n"
        for name, text in texts.items()
    )
    body = "".join(
        f".param .b64 a{n}; mov.b64 %rd1, {name}; cvta.global.u64 %rd1, %rd1; st.param.b64 [a{n}], %rd1;\n"
        for n, name in zip((0, 1, 3), texts, strict=True)
    )
    body += """.param .b32 a2; mov.u32 %r1, 12; st.param.b32 [a2], %r1; .param .b64 a4; st.param.b64 [a4], 1;
    call.uni __assertfail, (a0, a1, a2, a3, a4);"""
    text = ptx_module(body, 0).replace(".visible", f"{declared}.visible", 1)
    with refuses(TrapError):
        Run((), None).launch(kernel_call(text))


def test_a_cooperative_launch_that_does_not_fit():
    call = kernel_call(ptx_module("", 0), grid=(265, 1, 1), block=(1024, 1, 1), cooperative=True)
    with refuses(LaunchError) as caught:
        Run((), None).launch(call)
    assert caught.value.cuda_error == 720  # cudaErrorCooperativeLaunchTooLarge
    Run((), None).launch(replace(call, grid=(264, 1, 1)))


def test_parameters_that_are_declared_as_pointers():
    """As `.ptr` with a space and an alignment, which say what they point at."""
    out = np.zeros(4, np.uint32)
    run = Run((), None)
    run.register(out)
    text = ptx_module("mov.u32 %r1, 7; st.global.u32 [%rd0], %r1;", 1)
    text = text.replace(".param .u64 p0", ".param .u64 .ptr .global .align 4 p0")
    run.launch(kernel_call(text, [out]))
    assert out[0] == 7


@pytest.mark.parametrize(
    "options",
    [
        {"smem": 300_000},
        {"block": (2048, 1, 1)},
        {"grid": (6, 1, 1), "cluster": (4, 1, 1)},
        {"grid": (32, 1, 1), "cluster": (32, 1, 1)},
        {"grid": (1, 70000, 1)},
    ],
    ids=["shared memory", "threads", "clusters of a grid", "CTAs of a cluster", "grid"],
)
def test_launch_limits(options):
    fails(LaunchError, "", **options)


def test_uninitialised_mbarrier():
    body = "mov.u32 %r1, smem; mbarrier.arrive.shared.b64 _, [%r1];"
    fails(BarrierError, body, smem=64)


def test_too_many_arrivals():
    body = "mov.u32 %r1, smem; mbarrier.init.shared.b64 [%r1], 20; mbarrier.arrive.shared.b64 _, [%r1];"
    fails(BarrierError, body, smem=64)


def test_deadlock_says_who_waits_for_what():
    body = """mov.u32 %r1, smem; setp.eq.u32 %p0, %r0, 0; mbarrier.init.shared.b64 [%r1+8], 3;
    .loc 1 77 0
    WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r1+8], 0;
    @!%p1 bra WAIT;"""
    fails(
        DeadlockError,
        body,
        smem=64,
    )


def test_deadlock_at_a_named_barrier():
    body = "mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 32; @%p0 bra END; bar.sync 1, 96; END:"
    fails(DeadlockError, body, block=(64, 1, 1))


def test_a_deadlock_says_who_could_have_arrived():
    body = """mov.u32 %r1, %tid.x; setp.ge.u32 %p0, %r1, 96; @%p0 bra OTHER;
    setp.ge.u32 %p0, %r1, 32; @%p0 bra END; barrier.sync 1, 64; bra END; OTHER: barrier.sync 2, 64; END:"""
    fails(
        DeadlockError,
        body,
        block=(128, 1, 1),
    )


def test_a_deadlock_says_who_of_the_cluster_has_exited():
    body = "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p0, %r1, 1; @%p0 bra END; L: .loc 1 61 0\nbra L; END:"
    fails(DeadlockError, body, grid=(2, 1, 1), cluster=(2, 1, 1))
    body = """mov.u32 %r1, smem; mbarrier.init.shared.b64 [%r1], 96; mov.u32 %r2, %cluster_ctarank;
    setp.eq.u32 %p0, %r2, 1; @%p0 bra END;
    L: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0; @!%p1 bra L; END:"""
    fails(DeadlockError, body, grid=(2, 1, 1), cluster=(2, 1, 1), smem=64)


def test_more_threads_than_a_barrier_expects():
    fails(BarrierError, "barrier.sync 1, 64;", block=(96, 1, 1))
    launch("barrier.sync 1, 64; barrier.sync 1, 64; bar.sync 0;", [OUT], block=(64, 1, 1))


@pytest.mark.parametrize("operation", ["arrive", "sync"])
def test_a_barrier_that_does_not_exist(operation):
    with refuses(BarrierError):
        launch(f"mov.u32 %r1, 17; bar.{operation} %r1, 64;", block=(32, 1, 1))


def test_a_store_over_an_mbarrier():
    body = "mov.u32 %r1, smem; mbarrier.init.shared.b64 [%r1+24], 20; {} st.shared.{} [%r1+{}], {};"
    for kind, place, value in (("u32", 28, "%r1"), ("u64", 24, "%rd0"), ("v2.u64", 16, "{%rd0, %rd0}")):
        fails(BarrierError, body.format("", kind, place, value), smem=64, block=(1, 1, 1))
        launch(body.format("mbarrier.inval.shared.b64 [%r1+24];", kind, place, value), [OUT], smem=64, block=(1, 1, 1))
    launch(body.format("", "u64", 16, "%rd0"), [OUT], smem=64, block=(1, 1, 1))


def test_endless_loop_is_a_deadlock():
    fails(
        DeadlockError,
        "SPIN: ld.global.u32 %r1, [%rd0]; setp.eq.u32 %p0, %r1, 0; @%p0 bra SPIN;",
    )


@pytest.mark.parametrize(
    ("content", "offset"),
    [(0xFF, 0), (0x00, 0), (0xFF, 16), (0xFF, 64)],
    ids=["no map", "empty map", "not aligned", "behind the end"],
)
def test_wrong_tensor_map(content, offset):
    body = """mov.u32 %r1, smem; mbarrier.init.shared.b64 [%r1], 1; mov.u32 %r2, 0;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+128], [%rd1, {%r2, %r2}], [%r1];"""
    block = np.full(256, content, "u1")
    array = block[-block.ctypes.data % 64 :][:160]
    body = f"add.u64 %rd1, %rd0, {offset};" + body
    fails(DescriptorError, body, arrays=[array], smem=1024, block=(1, 1, 1))


_HALF = "mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 16;"


def test_a_collective_whose_lanes_took_another_path():
    body = f"{_HALF} @%p0 bra END; .loc 1 8 0\nshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; END: st.global.u32 [%rd0], 1;"
    fails(SimulationError, body)


def test_a_collective_of_the_lanes_in_its_mask():
    out = np.zeros(32, "u4")
    body = f"""{_HALF} @%p0 bra END; shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xFFFF0000;
    mad.wide.u32 %rd1, %r1, 4, %rd0; st.global.u32 [%rd1], %r2; END:"""
    launch(body, [out])
    np.testing.assert_array_equal(out, [0] * 16 + [lane ^ 1 for lane in range(16, 32)])


def test_errors_are_one_family():
    for error in (BarrierError, DeadlockError, DescriptorError, LaunchError, MemoryAccessError, TrapError):
        assert issubclass(error, SimulationError)


def test_a_deadlock_names_the_cluster_that_waits_and_no_other():
    """The grid is as large as can be resident, so that is not the reason, although the kernel has atomics."""
    body = """mov.u32 %r1, %ctaid.x; red.global.add.u32 [%rd0], 1;
    setp.ne.u32 %p0, %r1, 2; @%p0 exit; bar.sync 1, 64;"""
    options = {"grid": (132, 1, 1), "cluster": (2, 1, 1), "smem": 120 << 10}
    text = str(fails(DeadlockError, body, **options))
    assert "of CTA (0" not in text
    assert "of CTA (1" not in text
    assert "resident at once" not in text


@pytest.mark.parametrize("beyond", [1, 2, 3])
@pytest.mark.parametrize("space", ["local", "shared", "global"])
def test_a_misaligned_address_names_its_lane(space, beyond):
    """Lanes have words that follow each other, but for lane 3, whose word begins too late."""
    slot = "" if space == "global" else f".{space} .align 16 .b8 slot[160]; mov.u64 %rd0, slot;"
    body = f"""{slot} mov.u32 %r1, %tid.x; mad.wide.u32 %rd3, %r1, 4, %rd0; setp.eq.u32 %p0, %r1, 3;
    @%p0 add.u64 %rd3, %rd3, {beyond}; ld.{space}.u32 %r2, [%rd3];"""
    fails(MemoryAccessError, body)


def test_the_first_mbarrier_that_is_overwritten_is_named():
    body = """mov.u32 %r1, %tid.x; mov.u32 %r0, smem; mad.lo.u32 %r2, %r1, 4, %r0;
    mbarrier.init.shared.b64 [%r0+16], 1; mbarrier.init.shared.b64 [%r0+64], 1; st.shared.u32 [%r2], %r1;"""
    fails(BarrierError, body, smem=256)


def test_a_rank_that_the_cluster_lacks_names_its_lane():
    """Lanes 0 and 1 name the two CTAs of the cluster, lane 2 a third."""
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, smem; add.u32 %r1, %r1, 1; shl.b32 %r1, %r1, 24; or.b32 %r2, %r2, %r1;
    st.shared::cluster.u32 [%r2], %r1;"""
    options = {"smem": 64, "grid": (2, 1, 1), "cluster": (2, 1, 1)}
    fails(MemoryAccessError, body, block=(3, 1, 1), **options)
    launch(body, block=(2, 1, 1), **options)


@pytest.mark.parametrize(
    "comparison", ["ltu.s32", "num.s32", "nan.u32", "lo.s32", "lt.b32", "hi.b64", "lo.f32", "hs.bf16"]
)
def test_comparisons_that_a_type_lacks(comparison):
    a = {"f32": "%f1", "bf16": "%h1", "b64": "%rd1"}.get(comparison.partition(".")[2], "%r1")
    fails(PtxSyntaxError, f"setp.{comparison} %p0, {a}, {a};")
