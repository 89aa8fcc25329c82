"""Shared memory: latency, interval, bank conflicts; matrices; atomics; memory of other CTAs of the cluster."""

from __future__ import annotations

from tests.time.machine import Launch, Machine
from tests.time.ptx import loads, timed

# Each word holds the address of its lane's 16 bytes, so that a loaded word is the next address; or all hold the base.
_OWN = """and.b32 %r90, %thread, 31; mad.lo.u32 %r91, %r90, 16, %base; mov.u32 %r92, %r91;
@%sunk mov.u32 %r92, 0;
setp.eq.u32 %p5, %warp, 0;
@%p5 st.shared.v4.u32 [%r91], {%r92, %r92, %r92, %r92};
mov.u32 %r0, %r91;"""
_BASE = """mad.lo.u32 %r91, %thread, 16, %base; mov.u32 %r92, %base;
@%sunk mov.u32 %r92, 0;
st.shared.v4.u32 [%r91], {%r92, %r92, %r92, %r92}; mov.u32 %r0, %base;"""
_LATENCY = {
    "lds32": (_OWN, "ld.volatile.shared.u32 %r0, [%r0];"),
    "lds64": (_OWN, "ld.volatile.shared.v2.u32 {%r0, %r1}, [%r0];"),
    "lds128": (_OWN, "ld.volatile.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%r0];"),
    "ldmatrix_x1": (_BASE, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r0];"),
    "ldmatrix_x4": (_BASE, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%r0];"),
    "atom_add": (_OWN, "atom.shared.add.u32 %r0, [%r0], 0;"),
}
_FOUR = "{%r0, %r1, %r2, %r3}"
# Statement, bytes of a lane, and whether its loaded registers must be summed lest ptxas drop it.
_INTERVAL = {
    "lds32": ("ld.volatile.shared.u32 %r{d}, [%r91+{o}];", 4, 0),
    "lds64": ("ld.volatile.shared.v2.u32 {{%r{d}, %r{d1}}}, [%r91+{o}];", 8, 0),
    "lds128": ("ld.volatile.shared.v4.u32 {{%r{d}, %r{d1}, %r{d2}, %r{d3}}}, [%r91+{o}];", 16, 0),
    "sts32": ("st.volatile.shared.u32 [%r91+{o}], %r50;", 4, 0),
    "sts64": ("st.volatile.shared.v2.u32 [%r91+{o}], {{%r50, %r51}};", 8, 0),
    "sts128": ("st.volatile.shared.v4.u32 [%r91+{o}], {{%r50, %r51, %r52, %r53}};", 16, 0),
    "ldmatrix_x1": ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r{d}}}, [%r91+{o}];", 16, 1),
    "ldmatrix_x2": ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r{d}, %r{d1}}}, [%r91+{o}];", 16, 2),
    "ldmatrix_x4": ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r{d}, %r{d1}, %r{d2}, %r{d3}}}, [%r91+{o}];", 16, 4),
    "ldmatrix_x4_trans": (
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%r{d}, %r{d1}, %r{d2}, %r{d3}}}, [%r91+{o}];", 16, 4,
    ),
    "stmatrix_x1": ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r91+{o}], {{%r50}};", 16, 0),
    "stmatrix_x4": ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r91+{o}], {{%r50, %r51, %r52, %r53}};", 16, 0),
    "atom_add": ("atom.shared.add.u32 %r{d}, [%r91+{o}], %r50;", 4, 1),
    "red_add": ("red.shared.add.u32 [%r91+{o}], %r50;", 4, 0),
}  # fmt: skip
_UNROLL = 16
_SMEM = 128 << 10
_ALL = Launch(block=1024, smem=_SMEM)


def _latency(name: str) -> str:
    setup, line = _LATENCY[name]
    return timed("\n".join([line] * 32), setup=setup, kept=["%r0"])


def _interval(name: str, ways: int = 1) -> str:
    """Return a kernel of accesses at which `ways` groups of lanes meet in the same banks."""
    line, lane_bytes, summed = _INTERVAL[name]
    is_store = name.startswith("st")
    lines = []
    for index in range(_UNROLL):  # to registers of their own: ptxas drops a load whose registers the next overwrites
        d = 100 + 4 * index
        lines.append(line.format(d=d, d1=d + 1, d2=d + 2, d3=d + 3, o=0 if is_store else 512 * index))
        lines += [f"xor.b32 %r{54 + part}, %r{54 + part}, %r{d + part};" for part in range(summed)]
    setup = f"""{loads(60)}
mad.lo.u32 %r91, %lane, {lane_bytes * ways}, %base; mad.lo.u32 %r92, %thread, 16, %base;
st.shared.v4.u32 [%r92], {{%r0, %r1, %r2, %r3}}; st.shared.v4.u32 [%r92+16384], {{%r0, %r1, %r2, %r3}};
mov.u32 %r94, %r91;"""
    if is_store:  # each warp to its own bytes
        setup += f"\nmad.lo.u32 %r91, %warp, {32 * lane_bytes * ways}, %r91;"
        turn = ""
    else:  # other bytes each turn, or ptxas might load once
        turn = "and.b32 %r93, %i, 1; shl.b32 %r93, %r93, 13; add.u32 %r91, %r94, %r93;"
    loaded = [] if is_store else [f"%r{100 + 4 * index}" for index in range(_UNROLL)]
    kept = loaded + [f"%r{54 + part}" for part in range(4)]
    return timed("\n".join([turn, *lines]), setup=setup, kept=kept)


def latency(machine: Machine) -> dict[str, object]:
    """Follow addresses in shared memory, one warp."""
    machine.prepare(map(_latency, _LATENCY))
    launch = Launch(smem=4096)
    return {"smem.latency": {name: machine.slope(_latency(name), (20, 60), launch).times(1 / 32) for name in _LATENCY}}


def interval(machine: Machine) -> dict[str, object]:
    """Access shared memory by all warps of an SM, without conflicts."""
    machine.prepare(map(_interval, _INTERVAL))
    made = {name: machine.slope(_interval(name), (20, 60), _ALL).times(1 / (32 * _UNROLL)) for name in _INTERVAL}
    wide = made["lds128"].value
    return {"smem.interval": made, "smem.bandwidth": 512 / wide if wide else 0.0}


def conflicts(machine: Machine) -> dict[str, object]:
    """Access shared memory with bank conflicts."""
    ways = {"lds32": (1, 2, 4, 8, 16, 32), "sts32": (1, 2, 4, 8, 16, 32), "lds128": (1, 2, 4, 8)}
    machine.prepare(_interval(name, way) for name in ways for way in ways[name])
    table = {
        name: {str(way): machine.slope(_interval(name, way), (10, 30), _ALL).times(1 / (32 * _UNROLL)) for way in many}
        for name, many in ways.items()
    }
    loaded = table["lds32"]
    return {"smem.conflict": table, "smem.wavefront": (loaded["32"].value - loaded["8"].value) / 24}


def others(machine: Machine) -> dict[str, object]:
    """Store and load again at once; atomics of a warp on one address."""
    again = timed(
        "st.volatile.shared.u32 [%r91], %r0; ld.volatile.shared.u32 %r0, [%r91];\n" * 16, setup=_OWN, kept=["%r0"]
    )
    same = timed(
        "atom.shared.add.u32 %r1, [%base], %r90; xor.b32 %r2, %r2, %r1;\n" * 16,
        setup=_OWN + "\nmov.u32 %r2, 0;", kept=["%r2"],
    )  # fmt: skip
    return {
        "smem.store_load": machine.slope(again, (20, 60), Launch(smem=4096)).times(1 / 16),
        "smem.atomic_same": machine.slope(same, (10, 30), _ALL).times(1 / (32 * 16)),
    }


_CLUSTER = """mov.u32 %r80, %cluster_ctarank; mov.u32 %r81, %cluster_nctarank; add.u32 %r82, %r80, 1;
rem.u32 %r82, %r82, %r81;
"""
_SYNC = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"


def distributed(machine: Machine) -> dict[str, object]:
    """Load from shared memory of the next CTA of a cluster: addresses that follow each other, and wide loads."""
    setup = f"""{_CLUSTER}mad.lo.u32 %r91, %lane, 16, %base; mapa.shared::cluster.u32 %r92, %r91, %r80;
mapa.shared::cluster.u32 %r0, %r91, %r82; st.shared.u32 [%r91], %r92;
{_SYNC}"""
    chased = timed("ld.volatile.shared::cluster.u32 %r0, [%r0];\n" * 16, setup=setup, finish=_SYNC, kept=["%r0"])
    setup = f"""{_CLUSTER}mad.lo.u32 %r91, %thread, 16, %base; mapa.shared::cluster.u32 %r92, %r91, %r82;
st.shared.v4.u32 [%r91], {{%r80, %r80, %r80, %r80}};
{_SYNC}"""
    body = "\n".join(
        f"ld.volatile.shared::cluster.v4.u32 {{%r{d}, %r{d + 1}, %r{d + 2}, %r{d + 3}}}, [%r92];" for d in (0, 4, 8, 12)
    )
    wide = timed(body, setup=setup, finish=_SYNC, kept=[f"%r{d}" for d in range(16)])
    sizes = (2,) if machine.simulated else (2, 4, 8)
    bandwidth = {}
    for size in sizes:
        turn = machine.slope(wide, (50, 150), Launch(grid=size, block=1024, smem=16 << 10, cluster=size))
        bandwidth[str(size)] = 4 * (16 << 10) / turn.value if turn.value else 0.0
    pair = Launch(grid=2, smem=4096, cluster=2)
    return {"dsmem.latency": machine.slope(chased, (20, 60), pair).times(1 / 16), "dsmem.bandwidth": bandwidth}


BENCHMARKS = (latency, interval, conflicts, others, distributed)
