"""Starts of launches: first accesses of a kernel, first passes over its code, the time between kernels, GPCs."""

from __future__ import annotations

import itertools

import numpy as np

from tests.time.copies import BULK, ring_launch
from tests.time.instructions import clock, statements
from tests.time.machine import Figure, Launch, Machine, figure
from tests.time.ptx import HEADER, loads, timed, wait

_COMPANY = timed("", threads=1024)
"""Kernel between two launches of another: it brings its own code and parameters."""


_LOOP = """mov.u32 %r70, 0;
AGAIN:
{lines}
add.u32 %r70, %r70, 1; setp.lt.u32 %p2, %r70, 100;
@%p2 bra AGAIN;
"""


def _straight(kilobytes: int, after_loop: bool = False) -> str:
    """Return a kernel of two turns over so much code, maybe after a loop in each, whose cycles it keeps apart."""
    lines = "\n".join(statements("ffma", 8, kilobytes * 1024 // 16))
    loop = _LOOP.format(lines="\n".join(statements("ffma", 8, 16))) if after_loop else ""
    # Clocks are read in order, and a branch that needs them keeps the code between them.
    return timed(f"""{loop}mov.u64 %rd80, %clock64;
{lines}
mov.u64 %rd81, %clock64; sub.u64 %rd81, %rd81, %rd80; setp.eq.u32 %p1, %i, 0;
@%p1 mov.u64 %w5, %rd81;
@!%p1 mov.u64 %w6, %rd81;""", setup=loads(43), kept=[f"%r{index}" for index in range(16)])  # fmt: skip


def code(machine: Machine) -> dict[str, object]:
    """Pass over code for the first time in a launch, on all SMs, after another kernel and after the same one.

    Or after a loop of the kernel's own, behind which the code lies.
    """
    sizes = (2,) if machine.simulated else (2, 4, 8, 16, 32, 48)
    cases = {"again": (False, None), "company": (False, _COMPANY), "loop": (True, _COMPANY)}
    texts = {(size, after): _straight(size, after) for size in sizes for after in (False, True)}
    machine.prepare([*texts.values(), _COMPANY])
    launch = Launch(machine.sms, 128)
    made: dict[str, dict[str, Figure]] = {name: {} for name in cases}
    for size in sizes:
        for name, (after, before) in cases.items():
            found = machine.sequence(texts[size, after], 2, launch, 2 if machine.simulated else 20, before)
            more = (float(np.median(each.words[:, :, 5] - each.words[:, :, 6])) for each in found)
            made[name][str(size * 1024)] = figure(more)
    return {"start.code": made}


_TENSOR = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%base+1024], [%map, {{%zero, %row{0}}}], [%base+{1}];"
)


def _until(value: str, number: int) -> str:
    """Return statements that keep what follows until a value is there."""
    return f"setp.eq.u32 %p{number}, {value}, 0x12345678;\n@%p{number} bra END;"


def _copied(index: int, before: str, after: str) -> str:
    return f"""mov.u64 {before}, %clock64;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%base+{8 * index}], 1024;
{_TENSOR.format(index, 8 * index)}
{wait(f"%base+{8 * index}", "0", f"COPY{index}")}
mov.u64 {after}, %clock64;"""


# One thread of each CTA: the first parameter, one more, two lines of L2, and two boxes by a tensor map.
_FIRST = HEADER + f""".visible .entry timed(
    .param .u64 out_, .param .u64 data_, .param .u32 n_, .param .align 64 .b8 map_[128])
.maxntid 32
{{
.reg .pred %p<64>; .reg .b32 %r<20>, %base, %zero, %row0, %row1; .reg .b64 %c<12>, %rd<12>, %map;
mov.u64 %c0, %clock64;
ld.param.u32 %r0, [n_]; cvt.u32.u64 %r1, %c0; add.u32 %r2, %r0, %r1;
{_until("%r2", 0)}
mov.u64 %c1, %clock64;
ld.param.u64 %rd0, [data_]; cvt.u32.u64 %r3, %rd0; cvt.u32.u64 %r4, %c1; add.u32 %r5, %r3, %r4;
{_until("%r5", 1)}
mov.u64 %c2, %clock64;
cvta.to.global.u64 %rd0, %rd0; mov.u32 %r6, %ctaid.x; mul.wide.u32 %rd1, %r6, 4096; add.u64 %rd1, %rd0, %rd1;
mov.u64 %c3, %clock64;
ld.volatile.global.u32 %r7, [%rd1];
{_until("%r7", 2)}
mov.u64 %c4, %clock64;
ld.volatile.global.u32 %r8, [%rd1+2048];
{_until("%r8", 3)}
mov.u64 %c5, %clock64;
mov.u32 %base, smem; mov.u32 %zero, 0; mov.u32 %row0, 0; mov.u32 %row1, 8;
mov.u64 %map, map_; cvta.param.u64 %map, %map; mov.u32 %r9, %tid.x; setp.ne.u32 %p4, %r9, 0;
@%p4 bra END;
mbarrier.init.shared::cta.b64 [%base], 1; mbarrier.init.shared::cta.b64 [%base+8], 1;
fence.mbarrier_init.release.cluster; fence.proxy.async;
{_copied(0, "%c6", "%c7")}
{_copied(1, "%c8", "%c9")}
ld.param.u64 %rd2, [out_]; cvta.to.global.u64 %rd2, %rd2; mul.wide.u32 %rd3, %r6, 64; add.u64 %rd2, %rd2, %rd3;
sub.u64 %c0, %c1, %c0; sub.u64 %c1, %c2, %c1; sub.u64 %c3, %c4, %c3; sub.u64 %c4, %c5, %c4;
sub.u64 %c6, %c7, %c6; sub.u64 %c8, %c9, %c8;
st.global.v2.u64 [%rd2], {{%c0, %c1}}; st.global.v2.u64 [%rd2+16], {{%c3, %c4}};
st.global.v2.u64 [%rd2+32], {{%c6, %c8}};
END:
ret;
}}
"""  # fmt: skip
_ACCESSES = ("parameters", "global", "tensor_map")


def accesses(machine: Machine) -> dict[str, object]:
    """Access parameters, L2 and a tensor map for the first and the second time in a launch, on all SMs.

    Or for the first time after L2 has lost all parameters: "cold".
    """
    data = machine.zeros(1 << 20)
    tensor_map = machine.tensor_map(data, 128, 4096, (64, 8), "128")
    launch = Launch(machine.sms, 32, 4096, extra=(tensor_map,))
    machine.prepare([_FIRST, _COMPANY])
    words = []
    for cold in (False, True):
        found = machine.sequence(_FIRST, 0, launch, 2 if machine.simulated else 40, _COMPANY, data, cold)
        words.append(np.median(np.stack([each.words[:, 0] for each in found]), axis=(0, 1)))
    return {
        "start.accesses": {
            name: {
                "first": float(words[0][2 * index]),
                "second": float(words[0][2 * index + 1]),
                "cold": float(words[1][2 * index]),
            }
            for index, name in enumerate(_ACCESSES)
        }
    }


_BODY_CYCLES = 4000
_SPUN = """mov.u64 %c0, %clock64;
AGAIN:
mov.u64 %c1, %clock64; sub.u64 %c2, %c1, %c0; setp.lt.u64 %p0, %c2, {cycles};
@%p0 bra AGAIN;"""
# Four lanes of each warp fill the warp's record.
_STORED = """ld.param.u64 %c3, [out_]; cvta.to.global.u64 %c3, %c3; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x;
mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2; shr.u32 %r0, %r0, 5; and.b32 %r2, %r2, 31;
setp.lt.u32 %p1, %r2, 4; mad.lo.u32 %r0, %r0, 4, %r2; mul.wide.u32 %c4, %r0, 16; add.u64 %c3, %c3, %c4;
@%p1 st.global.v2.u64 [%c3], {%c0, %c1};"""


def _spinning(before: str = "", after: str = "", cycles: int = _BODY_CYCLES) -> str:
    """Return a kernel whose CTAs take so many cycles."""
    return (
        HEADER
        + f""".visible .entry timed(.param .u64 out_, .param .u64 data_, .param .u32 n_)
{{
.reg .pred %p<2>; .reg .b64 %c<5>; .reg .b32 %r<4>;
{before}
{_SPUN.format(cycles=cycles)}
{after}
ret;
}}
"""
    )


_WAIT, _LET_BEGIN = "griddepcontrol.wait;", "griddepcontrol.launch_dependents;"
_SPINNING = {
    "plain": (_spinning(), False),
    "stores": (_spinning(after=_STORED), False),
    "programmatic": (_spinning(_WAIT), True),
    "programmatic, begins early": (_spinning(_WAIT + _LET_BEGIN), True),
    "programmatic, stores": (_spinning(_WAIT, _STORED), True),
    "programmatic, begins early, stores": (_spinning(_WAIT + _LET_BEGIN, _STORED), True),
}
_SHAPES = ((132, 128, 0), (132, 384, 100_000), (132, 384, 200_000))


def overheads(machine: Machine) -> dict[str, object]:
    """Launch kernels of known length in a graph: what the interval is more than their cycles."""
    machine.prepare([*(text for text, _ in _SPINNING.values()), _CLOCK])
    few, many = (2, 4) if machine.simulated else (100, 300)
    ns = _BODY_CYCLES / clock(machine) * 1e9
    made: dict[str, dict[str, Figure]] = {}
    for name, (text, programmatic) in _SPINNING.items():
        made[name] = {}
        for shape in ((2, 128, 0),) if machine.simulated else _SHAPES:
            launch, samples = Launch(*shape, programmatic=programmatic), []
            for _ in range(1 if machine.simulated else 3):
                times = [machine.graph_seconds(text, 1, launch, count) for count in (few, many)]
                samples.append((times[1] - times[0]) / (many - few) * 1e9 - ns)
            made[name]["x".join(map(str, shape))] = figure(samples)
    return {"launch.overhead": made, "launch.gap": _gap(machine, False), "launch.gap_pdl": _gap(machine, True)}


def cold(machine: Machine) -> dict[str, object]:
    """Launch kernels of known length in a graph whose parameters L2 has lost: ns beyond their cycles."""
    kinds = ("plain", "stores", "programmatic, stores", "programmatic, begins early, stores")
    machine.prepare(_SPINNING[name][0] for name in kinds)
    few, many = (2, 4) if machine.simulated else (100, 300)
    ns = _BODY_CYCLES / clock(machine) * 1e9
    made: dict[str, Figure] = {}
    for name in kinds:
        text, programmatic = _SPINNING[name]
        launch = Launch(2, 128) if machine.simulated else Launch(132, 384, 100_000, programmatic=programmatic)
        samples = []
        for _ in range(1 if machine.simulated else 3):
            times = [machine.graph_seconds(text, 1, launch, count, cold=True) for count in (few, many)]
            samples.append((times[1] - times[0]) / (many - few) * 1e9 - ns)
        made[name] = figure(samples)
    return {"launch.cold": made}


def clustered(machine: Machine) -> dict[str, object]:
    """Launch kernels of known length in a graph by clusters, of one and of two CTAs an SM: ns beyond their cycles."""
    kinds = ("plain", "stores", "programmatic, stores", "programmatic, begins early, stores")
    machine.prepare(_SPINNING[name][0] for name in kinds)
    few, many = (2, 4) if machine.simulated else (100, 300)
    ns = _BODY_CYCLES / clock(machine) * 1e9
    made: dict[str, dict[str, Figure]] = {name: {} for name in kinds}
    for name, found in made.items():
        text, programmatic = _SPINNING[name]
        for size, smem in (
            [(2, 0)] if machine.simulated else [(n, smem) for n in (1, 2, 4) for smem in (100_000, 200_000)]
        ):
            grid = 2 if machine.simulated else 120
            launch, samples = Launch(grid, 384, smem, cluster=size, programmatic=programmatic), []
            for _ in range(1 if machine.simulated else 3):
                times = [machine.graph_seconds(text, 1, launch, count) for count in (few, many)]
                samples.append((times[1] - times[0]) / (many - few) * 1e9 - ns)
            found[f"{size}x{smem}"] = figure(samples)
    return {"launch.clusters": made}


def counted(machine: Machine) -> dict[str, object]:
    """Launch kernels of known length in a stream: what CUPTI's durations are more than their cycles."""
    machine.prepare([*(text for text, _ in _SPINNING.values())])
    count = 2 if machine.simulated else 40
    ns = _BODY_CYCLES / clock(machine) * 1e9
    made: dict[str, dict[str, Figure | None]] = {}
    for name, (text, programmatic) in _SPINNING.items():
        for shape in ((2, 128, 0),) if machine.simulated else _SHAPES:
            durations = machine.durations(text, 1, Launch(*shape, programmatic=programmatic), count)
            each = figure(durations) if durations else None
            found = None if each is None else Figure(each.value - ns, each.spread)
            made.setdefault(name, {})["x".join(map(str, shape))] = found
    return {"launch.counted": made}


# The first and the last instruction but for the stores; what lies between takes as long as the wait.
_CLOCK = HEADER + """.visible .entry timed(.param .u64 out_, .param .u64 data_, .param .u32 n_)
{
.reg .b64 %g<4>; .reg .b32 %r<4>; .reg .pred %p<2>;
mov.u64 %g0, %globaltimer;
griddepcontrol.launch_dependents;
griddepcontrol.wait;
mov.u64 %g1, %globaltimer;
ld.param.u64 %g2, [out_]; cvta.to.global.u64 %g2, %g2; mov.u32 %r0, %ctaid.x; mul.wide.u32 %g3, %r0, 64;
add.u64 %g2, %g2, %g3; mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;
@%p0 st.global.v2.u64 [%g2+16], {%g0, %g1};
ret;
}
"""  # fmt: skip


def _gap(machine: Machine, programmatic: bool) -> Figure:
    """Return the ns from the end of a kernel that does next to nothing to the time at which its like may work."""
    launch = Launch(machine.sms, 32, programmatic=programmatic)
    words = [records.words for records in machine.sequence(_CLOCK, 0, launch, 2 if machine.simulated else 40)]
    at = [int(word[:, 0, 3].max()) for word in words]
    return figure(after - before for before, after in itertools.pairwise(at))


def clusters(machine: Machine) -> dict[str, object]:
    """Launch more clusters than there is room for, of one CTA an SM: how many begin before the first one ends."""
    made = {}
    text = timed("""AGAIN:
mov.u64 %rd1, %clock64; sub.u64 %rd1, %rd1, %c0; setp.lt.u64 %p1, %rd1, 100000;
@%p1 bra AGAIN;""", threads=128)  # fmt: skip
    for size in (2,) if machine.simulated else (1, 2, 4, 8):
        grid = size * 2 if machine.simulated else machine.sms // size * size * 2
        records = machine.records(text, 1, Launch(grid, 128, 0 if machine.simulated else 200_000, cluster=size))
        records = machine.records(text, 1, Launch(grid, 128, 0 if machine.simulated else 200_000, cluster=size))
        begun, ended = records.words[:, :, 2].min(1), records.words[:, :, 3].max(1)
        made[str(size)] = float(-(-int((begun < ended.min()).sum()) // size))
    return {"cluster.most": made}


_BOX = 8192


def reads(machine: Machine) -> dict[str, object]:
    """Read by bulk copies in each launch of a graph: ns from launch to launch by bytes, of DRAM and of L2."""
    machine.prepare([BULK])
    footprint = 1 << 20 if machine.simulated else 4 << 30
    data = machine.zeros(footprint)
    made: dict[str, dict[str, Figure]] = {"dram": {}, "l2": {}}
    for boxes in (1,) if machine.simulated else (1, 2, 4, 8, 16, 32, 64):
        of_all = boxes * machine.sms
        places = max(1, min(64, footprint // _BOX // of_all // 2))
        slots = min(boxes, 12)
        for name, found in made.items():
            # The first boxes fill the slots before the loop.
            kernels = [
                (BULK, ring_launch(footprint, slots, _BOX, machine.sms, first=place * of_all * (name == "dram")))
                for place in range(places)
            ]
            few, many = (1, 2) if machine.simulated else (1, 3)
            samples = []
            for _ in range(1 if machine.simulated else 3):
                times = [machine.turns_seconds(kernels, boxes - slots, count, data=data) for count in (few, many)]
                samples.append((times[1] - times[0]) / (many - few) / places * 1e9)
            found[str(of_all * _BOX)] = figure(samples)
    return {"launch.reads": made}


_COPY = timed(
    """ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd20];
st.global.v4.u32 [%rd21], {%r10, %r11, %r12, %r13};""",
    setup="""ld.param.u32 %r0, [first_]; mad.lo.u32 %r1, %cta, %threads, %thread; add.u32 %r1, %r1, %r0;
mul.wide.u32 %rd20, %r1, 16; add.u64 %rd20, %data, %rd20; ld.param.u32 %r2, [half_]; mul.wide.u32 %rd21, %r2, 16;
add.u64 %rd21, %rd20, %rd21;""",
    parameters=".param .u32 first_, .param .u32 half_",
)
"""Each thread copies 16 bytes, from the memory's first half to its second."""
_COPIED_BYTES = 64 << 20
"""Bytes that a turn reads, at least, and as many that it writes."""


def copies(machine: Machine) -> dict[str, object]:
    """Copy by threads in each launch of a graph: ns from launch to launch by bytes read, of DRAM and of L2."""
    machine.prepare([_COPY])
    footprint, threads = 1 << 20 if machine.simulated else 4 << 30, 256
    data, half = machine.zeros(footprint), footprint // 2
    made: dict[str, dict[str, Figure]] = {"dram": {}, "l2": {}}
    for ctas in (2,) if machine.simulated else (32, 66, 132, 264, 528, 1056, 2112, 4224):
        of_all = ctas * threads
        enough = -(-_COPIED_BYTES // (16 * of_all))  # L2 must not hold all places
        places = max(1, min(max(64, enough), half // 16 // of_all))
        for name, found in made.items():
            firsts = [place * of_all * (name == "dram") for place in range(places)]
            kernels = [(_COPY, Launch(ctas, threads, extra=(first, half // 16))) for first in firsts]
            few, many = (1, 2) if machine.simulated else (1, 3)
            samples = []
            for _ in range(1 if machine.simulated else 3):
                times = [machine.turns_seconds(kernels, 1, count, data=data) for count in (few, many)]
                samples.append((times[1] - times[0]) / (many - few) / places * 1e9)
            found[str(16 * of_all)] = figure(samples)
    return {"launch.copies": made}


BENCHMARKS = (code, accesses, overheads, cold, clustered, counted, clusters, reads, copies)
