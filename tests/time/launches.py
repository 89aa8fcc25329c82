"""Launches: intervals in graphs and streams, programmatic launches, clusters; starts and successions of CTAs."""

from __future__ import annotations

import numpy as np

from tests.time.instructions import clock
from tests.time.machine import Figure, Launch, Machine, figure
from tests.time.ptx import HEADER, timed

EMPTY = HEADER + ".visible .entry timed(.param .u64 out_, .param .u64 data_, .param .u32 n_) { ret; }\n"
# The next kernel may begin at once; this one's own work waits for the kernel before it.
PROGRAMMATIC = (
    HEADER
    + """.visible .entry timed(.param .u64 out_, .param .u64 data_, .param .u32 n_) {
griddepcontrol.launch_dependents;
griddepcontrol.wait;
ret;
}
"""
)
_RECORDED = timed("", threads=1024)
_SM_THREADS = 2048
# 2000 cycles or so
_SPIN = timed("""mov.u64 %rd2, %clock64; sub.u64 %rd3, %rd2, %c0; setp.lt.u64 %p1, %rd3, 2000;
@%p1 bra TURN;""")


def _interval(machine: Machine, ptx: str, launch: Launch) -> Figure:
    """Return nanoseconds from one launch of a graph to the next: graphs of 300 less graphs of 100."""
    few, many = (2, 4) if machine.simulated else (100, 300)
    samples = []
    for _ in range(3 if not machine.simulated else 1):
        times = [machine.graph_seconds(ptx, 1, launch, count) for count in (few, many)]
        samples.append((times[1] - times[0]) / (many - few) * 1e9)
    return figure(samples)


_SHAPES = (
    (1, 128, 0), (132, 128, 0), (132, 384, 0), (132, 1024, 0), (132, 384, 100_000), (132, 384, 200_000), (1056, 128, 0),
)  # fmt: skip


def intervals(machine: Machine) -> dict[str, object]:
    """Launch empty kernels one after the other."""
    shapes = ((1, 128, 0), (2, 128, 0)) if machine.simulated else _SHAPES
    machine.prepare([EMPTY, PROGRAMMATIC])

    def name(shape: tuple[int, int, int]) -> str:
        return "x".join(map(str, shape))

    plain = {name(shape): _interval(machine, EMPTY, Launch(*shape)) for shape in shapes}
    grid = 4 if machine.simulated else 128
    count = 4 if machine.simulated else 1000
    return {
        "launch.graph_empty": plain["1x128x0"],
        "launch.interval": plain,
        "launch.interval_pdl": {
            name(shape): _interval(machine, PROGRAMMATIC, Launch(*shape, programmatic=True)) for shape in shapes
        },
        "launch.interval_cluster": {
            str(size): _interval(machine, EMPTY, Launch(grid, 384, 0 if machine.simulated else 200_000, size))
            for size in (2, 4)
        },
        "launch.stream": Figure(machine.stream_seconds(EMPTY, 1, Launch(1, 128), count) / count * 1e9),
    }


def gaps(machine: Machine) -> dict[str, object]:
    """Read the global timer in kernels that follow each other: from their first CTA's start to their last one's."""
    launch = Launch(machine.sms, 128)
    words = [records.words for records in machine.sequence(_RECORDED, 1, launch, 2 if machine.simulated else 40)]
    return {
        "launch.kernel": figure(int(word[:, :, 3].max()) - int(word[:, :, 2].min()) for word in words),
        "cta.start_skew": figure(int(np.ptp(word[:, :, 2].min(1))) for word in words),
    }


def ctas(machine: Machine) -> dict[str, object]:
    """Start many CTAs: how many a second, and how soon after the end of the CTA before."""
    few, many = (2, 4) if machine.simulated else (132 * 100, 132 * 400)
    machine.prepare([EMPTY, _SPIN])
    samples = []
    for _ in range(machine.repetitions):
        times = [machine.seconds(EMPTY, 1, Launch(count, 32)) for count in (few, many)]
        samples.append((many - few) / (times[1] - times[0]))
    turnaround = {}
    alone = [(128, 200_000), (384, 200_000), (1024, 200_000)]
    for block, smem in [(128, 0)] if machine.simulated else [*alone, (128, 0), (256, 0), (512, 0), (1024, 0)]:
        # Without shared memory, six rounds of as many CTAs as an SM has threads for.
        each = 2 if machine.simulated else 16 if smem else 6 * _SM_THREADS // block
        launch = Launch(machine.sms * each, block, smem)
        for _ in range(1 if machine.simulated else 2):
            records = machine.records(_SPIN, 1, launch)
        words = records.words
        gaps_between = []
        for sm in np.unique(words[:, 0, 4]):
            own = words[words[:, 0, 4] == sm]
            starts, ends = own[:, :, 0].min(1), own[:, :, 1].max(1)
            first = int((starts < ends.min()).sum())  # that begin at once; each later one follows the end of one
            gaps_between += [*(np.sort(starts)[first:] - np.sort(ends)[: len(ends) - first])]
        turnaround[f"{block}x{launch.smem}"] = figure(gaps_between or [0])
    rate = figure(samples)
    return {"cta.rate": rate.times(1 / clock(machine)), "cta.rate_hz": rate, "cta.turnaround": turnaround}


_ROUND_CYCLES = 4000
_ROUND = """.visible .entry timed(.param .u64 out_, .param .u64 data_, .param .u32 n_)
{
.reg .pred %p<2>; .reg .b64 %c<5>; .reg .b32 %r<4>;
mov.u64 %c0, %clock64;
AGAIN:
mov.u64 %c1, %clock64; sub.u64 %c2, %c1, %c0; setp.lt.u64 %p0, %c2, CYCLES;
@%p0 bra AGAIN;
STORE
ret;
}
""".replace("CYCLES", str(_ROUND_CYCLES))
# 4 bytes of each thread
_ROUND_STORE = """ld.param.u64 %c3, [data_]; cvta.to.global.u64 %c3, %c3; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0; mul.wide.u32 %c4, %r0, 4;
add.u64 %c3, %c3, %c4; st.global.u32 [%c3], %r0;"""
_ROUNDS = {"plain": HEADER + _ROUND.replace("STORE", ""), "stores": HEADER + _ROUND.replace("STORE", _ROUND_STORE)}


def rounds(machine: Machine) -> dict[str, object]:
    """Run rounds of CTAs that all take as long, as many at once as an SM has room for: cycles of a round beyond theirs.

    By threads of a CTA; those of a round of 2048 threads end at about the same time.
    """
    few, many, count = (1, 2, 1) if machine.simulated else (2, 30, 8)
    machine.prepare(_ROUNDS.values())
    data = machine.zeros(4 * many * machine.sms * _SM_THREADS)
    made: dict[str, dict[str, Figure]] = {}
    for name, text in _ROUNDS.items():
        for block in (1024,) if machine.simulated else (64, 128, 256, 512, 1024):
            each = machine.sms * min(32, _SM_THREADS // block)
            samples = []
            for _ in range(machine.repetitions):
                times = [
                    machine.turns_seconds([(text, Launch(each * turns, block))], 1, count, data=data)
                    for turns in (few, many)
                ]
                cycles = (times[1] - times[0]) / count / (many - few) * clock(machine)
                samples.append(cycles - _ROUND_CYCLES)
            made.setdefault(name, {})[str(block)] = figure(samples)
    return {"cta.round": made}


def _with_parameters(nbytes: int, programmatic: bool) -> str:
    body = "griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" if programmatic else ""
    return (
        HEADER
        + f""".visible .entry timed(
    .param .u64 out_, .param .u64 data_, .param .u32 n_, .param .align 64 .b8 more_[{nbytes}]) {{
{body}
ret;
}}
"""
    )


def parameters(machine: Machine) -> dict[str, object]:
    """Launch empty kernels with more bytes of parameters, as of tensor maps: ns from launch to launch in a graph."""
    sizes = (64,) if machine.simulated else (64, 256, 512, 1024, 2048, 4032)
    made: dict[str, dict[str, Figure]] = {}
    for name, programmatic in (("plain", False), ("programmatic", True)):
        for size in sizes:
            launch = Launch(2 if machine.simulated else 132, 256, programmatic=programmatic, extra=(bytes(size),))
            made.setdefault(name, {})[str(size)] = _interval(machine, _with_parameters(size, programmatic), launch)
    return {"launch.parameters": made}


# A turn takes 1000 cycles, without memory.
_TURN = """mov.u64 %rd2, %clock64;
AGAIN: mov.u64 %rd3, %clock64; sub.u64 %rd3, %rd3, %rd2; setp.lt.u64 %p1, %rd3, 1000;
@%p1 bra AGAIN;"""
_WAIT, _LET_BEGIN = "griddepcontrol.wait;", "griddepcontrol.launch_dependents;"
_KINDS = {
    "plain": ("", False),
    "programmatic": (_WAIT, True),
    "programmatic, lets begin": (_WAIT + _LET_BEGIN, True),
    "lets begin": (_WAIT + _LET_BEGIN, False),
}


def neighbours(machine: Machine) -> dict[str, object]:
    """Launch kernels after plain ones and after their like: what a programmatic launch costs and gains."""
    few, many = (2, 4) if machine.simulated else (50, 150)
    texts = {name: timed(_TURN, setup=setup) for name, (setup, _) in _KINDS.items()}
    machine.prepare(texts.values())
    kernels = {
        name: (texts[name], Launch(16, 128, programmatic=programmatic)) for name, (_, programmatic) in _KINDS.items()
    }
    made: dict[str, dict[str, Figure]] = {"graph": {}, "stream": {}}
    for way, found in made.items():
        for first, second in [(name, name) for name in kernels] + [("plain", name) for name in kernels]:
            samples = []
            for _ in range(1 if machine.simulated else 3):
                pair = [kernels[first], kernels[second]]
                times = [machine.turns_seconds(pair, 1, count, way == "graph") for count in (few, many)]
                samples.append((times[1] - times[0]) / (many - few) * 1e9)
            found[f"{first} / {second}"] = figure(samples)
    return {"launch.neighbours": made}


BENCHMARKS = (intervals, gaps, ctas, rounds, parameters, neighbours)
