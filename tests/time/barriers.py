"""Barriers: of threads, mbarriers, clusters, the grid; fences."""

from __future__ import annotations

from tests.time.machine import Launch, Machine
from tests.time.ptx import timed, wait

_SMEM = Launch(block=64, smem=1024)
_INIT = """@%first mbarrier.init.shared::cta.b64 [%base], 1;
@%first mbarrier.init.shared::cta.b64 [%base+8], 1;
fence.mbarrier_init.release.cluster;
add.u32 %r10, %base, 8; mov.u32 %r11, 0;
"""
_SYNC = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
_ALIGNED_SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
_ALONE = "setp.ne.u32 %p10, %lane, 0;"


def threads(machine: Machine) -> dict[str, object]:
    """Synchronise all threads of a CTA."""
    text = timed("bar.sync 0;\n" * 8)
    counts = (32, 64) if machine.simulated else (32, 64, 128, 256, 384, 512, 1024)
    return {
        "barrier.sync": {
            str(count): machine.slope(text, (50, 150), Launch(block=count)).times(1 / 8) for count in counts
        }
    }


def named(machine: Machine) -> dict[str, object]:
    """Hand over between two warps by named barriers: one arrives, the other waits, and back."""
    text = timed("""@%p11 bra SECOND;
bar.arrive 1, 64; bar.sync 2, 64;
bra JOINED;
SECOND:
bar.sync 1, 64; bar.arrive 2, 64;
JOINED:""", setup="setp.eq.u32 %p11, %warp, 1;")  # fmt: skip
    return {"barrier.named_handover": machine.slope(text, (100, 300), Launch(block=64)).times(1 / 2)}


def mbarriers(machine: Machine) -> dict[str, object]:
    """Arrive, expect bytes, test, and hand over between two warps by mbarriers."""
    one = _INIT + "setp.ne.u32 %p10, %thread, 0;"
    arrive = timed("@%p10 bra OVER;\n" + "mbarrier.arrive.shared::cta.b64 %rd0, [%base];\n" * 8, setup=one)
    expect = timed("@%p10 bra OVER;\n" + "mbarrier.arrive.expect_tx.shared::cta.b64 %rd0, [%base], 0;\n" * 8, setup=one)
    test = timed(
        "@%p10 bra OVER;\n"
        + "mbarrier.try_wait.parity.shared::cta.b64 %p12, [%base], 1; selp.u32 %r12, 1, 0, %p12; "
        "add.u32 %r13, %r13, %r12;\n" * 8,
        setup=one + "\nmov.u32 %r13, 0;", kept=["%r13"],
    )  # fmt: skip
    handover = timed(f"""@%p10 bra JOINED;
@%p11 bra SECOND;
mbarrier.arrive.shared::cta.b64 %rd0, [%base];
{wait("%r10", "%r11", "FIRST_WAITS")}
bra JOINED;
SECOND:
{wait("%base", "%r11", "SECOND_WAITS")}
mbarrier.arrive.shared::cta.b64 %rd0, [%r10];
JOINED:
xor.b32 %r11, %r11, 1;""", setup=f"{_INIT}{_ALONE} setp.eq.u32 %p11, %warp, 1;")  # fmt: skip
    alone = Launch(smem=1024)
    return {
        "mbarrier.arrive": machine.slope(arrive, (50, 150), alone).times(1 / 8),
        "mbarrier.expect_tx": machine.slope(expect, (50, 150), alone).times(1 / 8),
        "mbarrier.try_wait": machine.slope(test, (50, 150), alone).times(1 / 8),
        "mbarrier.handover": machine.slope(handover, (100, 300), _SMEM).times(1 / 2),
    }


def clusters(machine: Machine) -> dict[str, object]:
    """Hand over between two CTAs of a cluster by remote arrivals; synchronise clusters."""
    handover = timed(f"""@%p10 bra JOINED;
@%p11 bra SECOND;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15];
{wait("%base", "%r11", "FIRST_WAITS", ".acquire.cluster")}
bra JOINED;
SECOND:
{wait("%base", "%r11", "SECOND_WAITS", ".acquire.cluster")}
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15];
JOINED:
xor.b32 %r11, %r11, 1;""", setup=f"""{_INIT}{_ALONE}
mov.u32 %r14, %cluster_ctarank; setp.eq.u32 %p11, %r14, 1; xor.b32 %r14, %r14, 1;
mapa.shared::cluster.u32 %r15, %base, %r14;
{_SYNC}""", finish=_SYNC)  # fmt: skip
    sync = timed(_ALIGNED_SYNC * 4)
    sizes = (2,) if machine.simulated else (2, 4, 8)
    return {
        "mbarrier.handover_cluster": machine.slope(handover, (100, 300), Launch(grid=2, cluster=2, smem=1024)).times(
            1 / 2
        ),
        "cluster.sync": {
            str(size): machine.slope(sync, (50, 150), Launch(grid=size, cluster=size, block=128)).times(1 / 4)
            for size in sizes
        },
    }


_FENCES = {
    "proxy_async": "fence.proxy.async;",
    "acq_rel_cta": "fence.acq_rel.cta;",
    "acq_rel_cluster": "fence.acq_rel.cluster;",
    "acq_rel_gpu": "fence.acq_rel.gpu;",
    "acq_rel_sys": "fence.acq_rel.sys;",
    "mbarrier_init": "fence.mbarrier_init.release.cluster;",
    "acq_rel_gpu_after_store": "st.volatile.global.u32 [%rd50], %r0; fence.acq_rel.gpu;",
    "proxy_async_after_store": "st.volatile.shared.u32 [%r50], %r0; fence.proxy.async;",
}


def fences(machine: Machine) -> dict[str, object]:
    """Time fences with nothing to wait for, and after a store."""
    setup = """mov.u32 %r0, %thread; mad.lo.u32 %r50, %thread, 4, %base; mul.wide.u32 %rd50, %thread, 4;
add.u64 %rd50, %data, %rd50;"""
    texts = {name: timed(line, setup=setup, threads=128) for name, line in _FENCES.items()}
    machine.prepare(texts.values())
    data = machine.zeros(1 << 16)
    launch = Launch(block=128, smem=1024)
    return {"fence": {name: machine.slope(text, (100, 300), launch, data) for name, text in texts.items()}}


def grid(machine: Machine) -> dict[str, object]:
    """Synchronise a grid of a CTA an SM by a counter; hand over between two SMs by a flag."""
    barrier = timed("""@%p10 bra JOINED;
mad.lo.u32 %r10, %i, %ctas, %ctas;
red.release.gpu.global.add.u32 [%data], 1;
AGAIN:
ld.acquire.gpu.global.u32 %r11, [%data]; setp.lt.u32 %p11, %r11, %r10;
@%p11 bra AGAIN;
JOINED:
bar.warp.sync -1; bar.sync 0;""", setup="setp.ne.u32 %p10, %thread, 0;")  # fmt: skip
    flags = timed("""@%p10 bra JOINED;
add.u32 %r10, %i, 1;
@%p11 bra SECOND;
st.release.gpu.global.u32 [%data], %r10;
FIRST:
ld.acquire.gpu.global.u32 %r11, [%data+128]; setp.lt.u32 %p12, %r11, %r10;
@%p12 bra FIRST;
bra JOINED;
SECOND:
ld.acquire.gpu.global.u32 %r11, [%data]; setp.lt.u32 %p12, %r11, %r10;
@%p12 bra SECOND;
st.release.gpu.global.u32 [%data+128], %r10;
JOINED:""", setup="setp.ne.u32 %p10, %thread, 0; setp.eq.u32 %p11, %cta, 1;")  # fmt: skip
    data = machine.zeros(4096)

    def before() -> None:
        machine.clear(data)

    everywhere = Launch(grid=machine.sms, block=128, cooperative=True)
    pair = Launch(grid=2, cooperative=True)
    return {
        "grid.barrier": machine.slope(barrier, (20, 60), everywhere, data, before),
        "flag.handover": machine.slope(flags, (20, 60), pair, data, before).times(1 / 2),
    }


BENCHMARKS = (threads, named, mbarriers, clusters, fences, grid)
