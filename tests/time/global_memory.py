"""Global memory: latency and bandwidth of L1, L2 and DRAM; TLB; atomics; asynchronous copies of threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.time.machine import Figure, Launch, Machine, figure, quantiles
from tests.time.ptx import loads, timed

_LINE = 128
# Of each pair of addresses, the first comes to hold the second.
_LINK = timed("""mul.wide.u32 %rd1, %i, 16; add.u64 %rd1, %rd50, %rd1; ld.global.v2.u64 {%rd2, %rd3}, [%rd1];
cvta.to.global.u64 %rd2, %rd2; st.global.u64 [%rd2], %rd3;""",
    setup="ld.param.u64 %rd50, [links_]; cvta.to.global.u64 %rd50, %rd50;",
    parameters=".param .u64 links_", threads=32,
)  # fmt: skip


def _link(machine: Machine, data: object, places: np.ndarray) -> None:
    """Let the word at each of some addresses hold the next address, and the last that of the first."""
    links = machine.upload(np.stack([places, np.roll(places, -1)], 1).astype(np.uint64).reshape(-1))
    machine.records(_LINK, len(places), Launch(extra=(links,)), data)


def _linked(machine: Machine, lines: np.ndarray, lines_in_all: int) -> object:
    """Return memory in which each of some lines holds the address of the next one, and the last that of the first."""
    data = machine.zeros(lines_in_all * _LINE)
    _link(machine, data, machine.address(data) + lines.astype(np.uint64) * np.uint64(_LINE))
    return data


def _chase(load: str, unroll: int) -> str:
    line = f"{load} %rd1, [%rd1];\n"
    return timed(line * unroll, setup="mov.u64 %rd1, %data;", threads=32, finish="cvt.u32.u64 %r0, %rd1;", kept=["%r0"])


def _order(count: int, step_lines: int, seed: int = 1) -> np.ndarray:
    """Return lines a step apart, in random order, beginning with the first."""
    rest = np.random.default_rng(seed).permutation(np.arange(1, count))
    return np.concatenate([[0], rest]) * step_lines


def latency(machine: Machine) -> dict[str, object]:
    """Follow addresses that hit L1, and that miss L1 and hit L2."""
    small = _linked(machine, _order(16, 1), 16)
    spread = _linked(machine, _order(16 if machine.simulated else 1024, 3), 4096)
    return {
        "l1.latency": machine.slope(_chase("ld.global.ca.u64", 16), (50, 150), data=small).times(1 / 16),
        "l2.latency": machine.slope(_chase("ld.global.cg.u64", 16), (128, 384), data=spread).times(1 / 16),
    }


_SPREAD = timed("""mul.wide.u32 %rd2, %i, %r50; add.u64 %rd1, %data, %rd2; st.global.u64 [%rd1], %rd1;
ld.global.cg.u64 %rd3, [%rd1];
st.volatile.shared.u64 [%base], %rd3;
membar.gl;
mov.u64 %rd6, %clock64;
ld.global.cg.u64 %rd3, [%rd3]; ld.global.cg.u64 %rd3, [%rd3]; ld.global.cg.u64 %rd3, [%rd3];
ld.global.cg.u64 %rd3, [%rd3]; ld.global.cg.u64 %rd3, [%rd3]; ld.global.cg.u64 %rd3, [%rd3];
ld.global.cg.u64 %rd3, [%rd3]; ld.global.cg.u64 %rd3, [%rd3];
st.volatile.shared.u64 [%base], %rd3;
mov.u64 %rd7, %clock64;
sub.u64 %rd7, %rd7, %rd6; cvt.u32.u64 %r1, %rd7;
mad.lo.u32 %r2, %cta, %n, %i; mul.wide.u32 %rd8, %r2, 4; add.u64 %rd8, %rd51, %rd8; st.global.u32 [%rd8], %r1;""",
    setup="""ld.param.u64 %rd51, [cycles_]; cvta.to.global.u64 %rd51, %rd51; ld.param.u32 %r50, [step_];
setp.ne.u32 %p2, %thread, 0; mul.lo.u32 %r51, %cta, 128; cvt.u64.u32 %rd52, %r51; add.u64 %data, %data, %rd52;""",
    parameters=".param .u64 cycles_, .param .u32 step_", threads=32, idle="%p2",
)  # fmt: skip


def distribution(machine: Machine) -> dict[str, object]:
    """Time each of many lines of L2, from one SM and from all."""
    count, step = (4, 4096) if machine.simulated else (512, 65536 + 4096)
    data = machine.zeros(count * step + 128 * machine.sms)

    def measured(ctas: int) -> np.ndarray:
        cycles = machine.zeros(4 * ctas * count)
        for _ in range(1 if machine.simulated else 3):
            machine.records(_SPREAD, count, Launch(grid=ctas, smem=1024, extra=(cycles, step)), data)
        return machine.download(cycles).view(np.uint32).reshape(ctas, count) / 8

    return {
        "l2.latency_distribution": quantiles(measured(1)[0]),
        "l2.latency_by_sm": quantiles(np.median(measured(machine.sms), axis=1)),
    }


def dram(machine: Machine) -> dict[str, object]:
    """Follow addresses that miss L2, each once, in 256 MiB."""
    count = 16 if machine.simulated else 4096
    lines = _order(count, 1 if machine.simulated else 512)
    data = _linked(machine, lines, int(lines.max()) + 1)
    text = _chase("ld.global.cg.u64", 16)
    cycles, times = [], []
    for _ in range(6):
        spans = []
        for turns in (1, 2) if machine.simulated else (64, 192):
            machine.flush()
            records = machine.records(text, turns, Launch(), data)
            spans.append((float(records.cycles[0]), records.span_ns))
        steps = 16 * (1 if machine.simulated else 128)
        cycles.append((spans[1][0] - spans[0][0]) / steps)
        times.append((spans[1][1] - spans[0][1]) / steps)
    return {"dram.latency": figure(cycles), "dram.latency_ns": figure(times)}


_PAGE = 2 << 20
_PIECE = 4 << 30
"""Bytes of an allocation; a single one of more than 16 GiB gave an illegal access (H200, 2026-11-30)."""


def _pages(machine: Machine, gibibytes: Sequence[float]) -> dict[str, Figure]:
    """Return the cycles from page to page by all pages' bytes; each page has one line, which stays in L2."""
    table: dict[str, Figure] = {}
    text = _chase("ld.global.cg.u64", 16)
    page, piece = (1 << 14, 1 << 16) if machine.simulated else (_PAGE, _PIECE)
    every = 1 << 16 if machine.simulated else int(max(gibibytes) * (1 << 30))
    pieces = [machine.zeros(min(piece, every)) for _ in range(-(-every // piece))]
    starts = np.array([machine.address(each) for each in pieces], np.uint64)
    for size in (every,) if machine.simulated else (int(each * (1 << 30)) for each in gibibytes):
        count = size // page
        order = _order(count, 1)
        # Lines of different pages are at different places in them, that they meet in no set of L2.
        offsets = order * page % piece + order * 5 % (page // _LINE) * _LINE
        _link(machine, pieces[0], starts[order * page // piece] + offsets.astype(np.uint64))
        turns = max(8, count // 16)
        table[str(size)] = machine.slope(text, (turns, 3 * turns), data=pieces[0], repetitions=3).times(1 / 16)
    return table


def tlb(machine: Machine) -> dict[str, object]:
    """Follow addresses 2 MiB apart, whose lines stay in L2: page tables."""
    return {"tlb.latency": _pages(machine, (1 / 32, 1 / 8, 1 / 2, 1, 2, 4, 8, 16))}


def tlb_far(machine: Machine) -> dict[str, object]:
    """Follow addresses 2 MiB apart in more memory."""
    return {"tlb.latency_far": _pages(machine, (32, 64))}


_VECTOR = "{{%r{0}, %r{1}, %r{2}, %r{3}}}"


def _stream(kind: str, unroll: int = 8) -> str:
    """Return a kernel that passes n times over memory: each warp reads or writes 512 bytes that follow each other."""
    lines = []
    for index in range(unroll):
        vector = _VECTOR.format(*range(4 * index, 4 * index + 4))
        lines.append(f"add.u64 %rd{40 + index}, %rd1, %rd{60 + index};" if index else "mov.u64 %rd40, %rd1;")
        if kind == "write":
            lines.append(f"st.global.v4.u32 [%rd{40 + index}], {{%n, %i, %r90, %thread}};")
        else:
            lines.append(f"ld.global.cg.v4.u32 {vector}, [%rd{40 + index}];")
    for index in range(unroll):
        if kind == "read":
            lines += [f"xor.b32 %r{50 + part}, %r{50 + part}, %r{4 * index + part};" for part in range(4)]
        if kind == "copy":
            vector = _VECTOR.format(*range(4 * index, 4 * index + 4))
            lines.append(
                f"add.u64 %rd{40 + index}, %rd{40 + index}, %rd5; st.global.v4.u32 [%rd{40 + index}], {vector};"
            )
    body = "\n".join(lines)
    turn = f"""add.u64 %rd1, %rd3, 0;
INNER:
{body}
add.u64 %rd1, %rd1, %rd2; setp.lt.u64 %p1, %rd1, %rd4;
@%p1 bra INNER;"""
    strides = "\n".join(f"mul.lo.u64 %rd{60 + index}, %rd6, {index};" for index in range(1, unroll))
    setup = f"""ld.param.u64 %rd7, [bytes_]; mad.lo.u32 %r90, %cta, %threads, %thread;
mul.wide.u32 %rd3, %r90, 16; add.u64 %rd3, %data, %rd3; add.u64 %rd4, %data, %rd7; mov.u64 %rd5, %rd7;
mul.lo.u32 %r91, %ctas, %threads; mul.wide.u32 %rd6, %r91, 16; mul.lo.u64 %rd2, %rd6, {unroll};
{strides}
mov.u32 %r50, 0; mov.u32 %r51, 0; mov.u32 %r52, 0; mov.u32 %r53, 0;"""
    return timed(turn, setup=setup, parameters=".param .u64 bytes_", kept=["%r50", "%r51", "%r52", "%r53"], threads=512)


_BLOCK = 512


def _passes(machine: Machine, kind: str, footprint: int, unroll: int = 4, seconds: float = 2e-3) -> Figure:
    """Return bytes a second of passes over a footprint, of whole sweeps; the launch takes about so long."""
    ctas, block = 2 * machine.sms, _BLOCK
    sweep = ctas * block * 16 * unroll
    footprint = -(-footprint // sweep) * sweep
    data = machine.zeros(footprint * (2 if kind == "copy" else 1))
    text, launch = _stream(kind, unroll), Launch(grid=ctas, block=block, extra=(np.uint64(footprint),))
    once = machine.seconds(text, 2, launch, data)
    once = machine.seconds(text, 2, launch, data) / 2
    few = 1 if machine.simulated else max(1, min(10_000, round(seconds / once)))
    samples = []
    for _ in range(machine.repetitions):
        difference = machine.seconds(text, 3 * few, launch, data) - machine.seconds(text, few, launch, data)
        samples.append(footprint * 2 * few * (2 if kind == "copy" else 1) / difference)
    return figure(samples)


def bandwidth(machine: Machine) -> dict[str, object]:
    """Read, write and copy in L2 and in DRAM."""
    small, large = (1 << 18, 1 << 19) if machine.simulated else (16 << 20, 4 << 30)
    machine.prepare(_stream(kind, unroll) for kind in ("read", "write", "copy") for unroll in (4, 8))
    return {
        "l2.bandwidth": _passes(machine, "read", small),
        "l2.write_bandwidth": _passes(machine, "write", small),
        "dram.bandwidth": _passes(machine, "read", large, 8),
        "dram.write_bandwidth": _passes(machine, "write", large),
        "dram.copy_bandwidth": _passes(machine, "copy", large // 2),
    }


def both_ways(machine: Machine) -> dict[str, object]:
    """Copy within L2: it may answer reads while it takes writes."""
    return {"l2.copy_bandwidth": _passes(machine, "copy", 1 << 17 if machine.simulated else 8 << 20)}


def curve(machine: Machine) -> dict[str, object]:
    """Read footprints of one sweep of all SMs, 4 MiB or so, up to several times L2."""
    sweep = 2 * machine.sms * _BLOCK * 16 * 2
    sweeps = (1,) if machine.simulated else (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 24, 32, 48, 64)
    return {"l2.curve": {str(count * sweep): _passes(machine, "read", count * sweep, 2, 1e-3) for count in sweeps}}


# Each warp of a CTA loads a line, or loads and stores one, and waits for the others of its CTA.
_TOGETHER = """and.b32 %r1, %i, 15; shl.b32 %r1, %r1, 12; shr.u32 %r2, %i, 4; mad.lo.u32 %r2, %r2, %r10, %r11;
shl.b32 %r2, %r2, 16; add.u32 %r1, %r1, %r2; cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %rd10, %rd1;
ld.global.cg.u32 %r3, [%rd1];
st.volatile.shared.u32 [%r12], %r3;
bar.sync 0;
"""
_STORED = "add.u64 %rd2, %rd1, %rd11; st.global.u32 [%rd2], %r3;\n"


def _together(stores: bool, rows: str, row: str) -> str:
    """Return a kernel whose CTAs read a row of 64 KiB by 4 KiB a turn, then one that is `rows` further, first `row`."""
    setup = f"""ld.param.u64 %rd11, [half_]; mul.wide.u32 %rd10, %thread, 4; add.u64 %rd10, %data, %rd10;
mov.u32 %r10, {rows}; mov.u32 %r11, {row}; shl.b32 %r12, %thread, 2; add.u32 %r12, %r12, %base;"""
    return timed(_TOGETHER + _STORED * stores, setup=setup, parameters=".param .u64 half_")


def together(machine: Machine) -> dict[str, object]:
    """Load a line by each of some warps of a CTA, which wait for each other, on one SM and on all: cycles of a turn.

    CTAs have rows of their own, or all read the same, or each reads its own again, which are in L2.
    """
    warps = (2,) if machine.simulated else (1, 2, 4, 8, 16, 32)
    few, many = (1, 2) if machine.simulated else (16, 64)
    half = 2 * 2 * 65536 if machine.simulated else (many // 16) * machine.sms * 65536
    data = machine.zeros(2 * half)
    cases = {
        "one": ((False, "%ctas", "%cta"), 1), "all": ((False, "%ctas", "%cta"), machine.sms),
        "same": ((False, "1", "0"), machine.sms), "stores": ((True, "%ctas", "%cta"), machine.sms),
        "l2": ((False, "0", "%cta"), machine.sms),
    }  # fmt: skip
    machine.prepare(_together(*case) for case, _ in cases.values())
    return {
        "dram.together": {
            name: {
                str(count): machine.slope(
                    _together(*case), (few, many), Launch(ctas, 32 * count, 4096, extra=(np.uint64(half),)), data,
                    machine.flush,
                )
                for count in warps
            }
            for name, (case, ctas) in cases.items()
        }
    }  # fmt: skip


# A CTA of eight warps stores a tile of 32 rows and 8 words: each warp a word of each row, whose sectors all warps fill.
_PARTS = """mad.lo.u32 %r1, %i, %ctas, %cta; and.b32 %r1, %r1, %r10; and.b32 %r2, %r1, %r11; shr.u32 %r3, %r1, %r12;
shl.b32 %r3, %r3, 5; add.u32 %r3, %r3, %lane; mul.wide.u32 %rd1, %r3, %r13;
shl.b32 %r2, %r2, 5; mad.lo.u32 %r2, %warp, 4, %r2; cvt.u64.u32 %rd2, %r2; add.u64 %rd1, %rd1, %rd2;
add.u64 %rd1, %data, %rd1;
st.global.u32 [%rd1], %r1;"""


def _parts(pitch_bytes: int, rows: int) -> str:
    """Return a kernel whose CTAs store the tiles of a matrix in turn; all powers of two."""
    across, all_ = pitch_bytes // 32, pitch_bytes // 32 * rows // 32
    setup = f"""mov.u32 %r10, {all_ - 1}; mov.u32 %r11, {across - 1}; mov.u32 %r12, {across.bit_length() - 1};
mov.u32 %r13, {pitch_bytes};"""
    return timed(_PARTS, setup=setup, threads=256)


def parts(machine: Machine) -> dict[str, object]:
    """Store columns of a matrix of 4 MiB and of 64, a word of a sector at a time: bytes a second of the words."""
    shapes = ((512, 64),) if machine.simulated else ((4096, 1024), (16384, 4096))
    few, many = (1, 2) if machine.simulated else (20, 60)
    ctas = 2 if machine.simulated else 8 * machine.sms
    made = {}
    machine.prepare(_parts(*shape) for shape in shapes)
    for pitch, rows in shapes:
        text, data, samples = _parts(pitch, rows), machine.zeros(pitch * rows), []
        for _ in range(machine.repetitions):
            times = [machine.seconds(text, count, Launch(ctas, 256), data) for count in (few, many)]
            samples.append(ctas * 1024 * (many - few) / (times[1] - times[0]))
        made[str(pitch)] = figure(samples)
    return {"l2.part_writes": made}


_ACCESS = {
    "ldg32": ("ld.global.ca.u32 %r{d}, [%rd1+{o}];", 4),
    "ldg64": ("ld.global.ca.v2.u32 {{%r{d}, %r{d1}}}, [%rd1+{o}];", 8),
    "ldg128": ("ld.global.ca.v4.u32 {{%r{d}, %r{d1}, %r{d2}, %r{d3}}}, [%rd1+{o}];", 16),
    "stg32": ("st.global.u32 [%rd1+{o}], %r50;", 4),
    "stg64": ("st.global.v2.u32 [%rd1+{o}], {{%r50, %r51}};", 8),
    "stg128": ("st.global.v4.u32 [%rd1+{o}], {{%r50, %r51, %r52, %r53}};", 16),
}


def _access(name: str, stride_words: int = 1) -> str:
    line, lane_bytes = _ACCESS[name]
    lines = ["and.b32 %r93, %i, 1; mul.wide.u32 %rd2, %r93, 8192; add.u64 %rd1, %rd3, %rd2;"]
    for index in range(16):
        d = 4 * (index % 4)
        lines.append(line.format(d=d, d1=d + 1, d2=d + 2, d3=d + 3, o=512 * index))
        if name.startswith("ldg"):
            lines += [f"xor.b32 %r{60 + part}, %r{60 + part}, %r{d + part};" for part in range(lane_bytes // 4)]
    warp = "mul.wide.u32 %rd4, %warp, 16384; add.u64 %rd3, %rd3, %rd4;" if name.startswith("stg") else ""
    setup = f"{loads(60)}\nmul.wide.u32 %rd3, %lane, {lane_bytes * stride_words}; add.u64 %rd3, %data, %rd3;\n{warp}"
    setup += "\n" + " ".join(f"mov.u32 %r{60 + part}, 0;" for part in range(4))
    return timed("\n".join(lines), setup=setup, kept=[f"%r{60 + part}" for part in range(4)], threads=512)


_BESIDE = {"lds32": "ld.volatile.shared.u32 %r{d}, [%r92+{o}];", "ldg32": "ld.global.ca.u32 %r{d}, [%rd3+{o}];"}


def _beside(name: str, count: int) -> str:
    """Return a kernel whose warps store a line, and then load so many from shared memory or L1, eight times a turn."""
    lines = []
    for index in range(8):
        lines.append(f"st.global.u32 [%rd5+{128 * index}], %r50;")
        lines += [_BESIDE[name].format(d=100 + n, o=128 * n) for n in range(count * index, count * (index + 1))]
    lines += [f"xor.b32 %r51, %r51, %r{100 + n};" for n in range(8 * count)]
    setup = f"""{loads(60)}
mul.wide.u32 %rd3, %lane, 4; add.u64 %rd3, %data, %rd3; mul.wide.u32 %rd4, %warp, 16384; add.u64 %rd5, %rd3, %rd4;
add.u64 %rd5, %rd5, 65536; shl.b32 %r92, %lane, 2; add.u32 %r92, %r92, %base; mov.u32 %r51, 0;
shl.b32 %r93, %thread, 2; add.u32 %r93, %r93, %base;
"""
    setup += " ".join(f"st.shared.u32 [%r93+{at}], %r51;" for at in range(0, 8192, 2048))
    return timed("\n".join(lines), setup=setup, kept=["%r51"], threads=512)


def beside(machine: Machine) -> dict[str, object]:
    """Store lines by sixteen warps of one SM, and load some from shared memory or L1 beside each: cycles of both."""
    data, launch = machine.zeros(1 << 20), Launch(block=512, smem=8192)
    counts = (0, 4) if machine.simulated else (0, 1, 2, 3, 4, 6, 8)
    machine.prepare(_beside(name, count) for name in _BESIDE for count in counts)
    return {
        "global.beside": {
            name: {
                str(count): machine.slope(_beside(name, count), (20, 60), launch, data).times(1 / (8 * 16))
                for count in counts
            }
            for name in _BESIDE
        }
    }


def accesses(machine: Machine) -> dict[str, object]:
    """Load what is in L1, coalesced and strided, and store, by sixteen warps of one SM."""
    data, launch = machine.zeros(1 << 20), Launch(block=512)
    strides = (1, 2, 4, 8, 16, 32)
    machine.prepare([_access(name) for name in _ACCESS] + [_access("ldg32", stride) for stride in strides])
    made = {name: machine.slope(_access(name), (20, 60), launch, data).times(1 / (16 * 16)) for name in _ACCESS}
    wide = made["ldg128"].value
    sectors = {
        str(stride): machine.slope(_access("ldg32", stride), (10, 30), launch, data).times(1 / (16 * 16))
        for stride in strides
    }
    return {"global.interval": made, "l1.bandwidth": 512 / wide if wide else 0.0, "global.sectors": sectors}


def atomics(machine: Machine) -> dict[str, object]:
    """Time atomics: their round trip, and how many reductions a second one SM and all SMs do."""
    chains = {
        "atom_add_u32": "atom.global.add.u32 %r0, [%data], %r0;\n",
        "atom_cas": "atom.global.cas.b32 %r0, [%data], %r0, %r1;\n",
        "atom_add_f32": "atom.global.add.f32 %r0, [%data], %r0;\n",
    }
    data = machine.zeros(8 << 20)
    where = """mad.lo.u32 %r90, %cta, %threads, %thread; add.u32 %r0, %lane, 1; mov.u32 %r1, 0; mov.b32 %r3, 0x3F800000;
mul.wide.u32 %rd1, %r90, {bytes}; add.u64 %rd1, %data, %rd1;"""
    lines = {
        "same": ("red.global.add.u32 [%data], %r0;\n", 4),
        "distinct": ("red.global.add.f32 [%rd1], %r3;\n", 4),
        "v4_f32": ("red.global.add.v4.f32 [%rd1], {%r3, %r3, %r3, %r3};\n", 16),
    }
    latencies = {
        name: timed(line * 8, setup="mov.u32 %r0, %lane; mov.u32 %r1, 7;", kept=["%r0"], threads=32)
        for name, line in chains.items()
    }
    texts = {name: timed(line * 8, setup=where.format(bytes=size)) for name, (line, size) in lines.items()}
    machine.prepare([*latencies.values(), *texts.values()])
    one, many = Launch(block=256), Launch(grid=machine.sms, block=1024)
    few, often = (1, 2) if machine.simulated else (50, 150)

    def rate(name: str) -> Figure:
        lanes = many.grid * many.block * 8 * (often - few)
        return figure(
            lanes / (machine.seconds(texts[name], often, many, data) - machine.seconds(texts[name], few, many, data))
            for _ in range(machine.repetitions)
        )

    single = Launch(block=1 if not machine.simulated else 32)
    for text in texts.values():
        machine.seconds(text, 1, many, data)
    return {
        "atomic.latency": {
            name: machine.slope(text, (20, 60), single, data).times(1 / 8) for name, text in latencies.items()
        },
        "atomic.red_interval": {
            name: machine.slope(text, (20, 60), one, data).times(1 / (8 * 8)) for name, text in texts.items()
        },
        "atomic.red_same": rate("same"),
        "atomic.red_distinct": rate("distinct"),
    }


def copies(machine: Machine) -> dict[str, object]:
    """Copy by cp.async from L2: one copy at a time of a warp, and many of all warps."""
    place = """shl.b32 %r90, %thread, 4; add.u32 %r91, %base, %r90; cvt.u64.u32 %rd1, %r90; add.u64 %rd1, %data, %rd1;
mov.u64 %rd3, %rd1;"""
    turn = "and.b32 %r93, %i, 7; mul.wide.u32 %rd2, %r93, 65536; add.u64 %rd1, %rd3, %rd2;\n"
    one = timed(
        turn + "cp.async.cg.shared.global [%r91], [%rd1], 16; cp.async.commit_group; cp.async.wait_group 0;",
        setup=place, threads=32,
    )  # fmt: skip
    many = timed(
        turn
        + "and.b32 %r93, %i, 1; mad.lo.u32 %r92, %r93, 65536, %r91;\n"
        + "".join(f"cp.async.cg.shared.global [%r92+{at}], [%rd1+{at}], 16;\n" for at in (0, 16384, 32768, 49152))
        + "cp.async.commit_group; cp.async.wait_group 1;",
        setup=place, drain="cp.async.wait_group 0;",
    )  # fmt: skip
    data = machine.zeros(1 << 20)
    wide = machine.slope(many, (50, 150), Launch(block=1024, smem=128 << 10), data)
    return {
        "cpasync.latency": machine.slope(one, (100, 300), Launch(smem=1024), data),
        "cpasync.interval": wide.times(1 / (32 * 4)),
        "cpasync.bandwidth": (64 << 10) / wide.value if wide.value else 0.0,
    }


BENCHMARKS = (
    latency,
    distribution,
    dram,
    tlb,
    tlb_far,
    bandwidth,
    both_ways,
    curve,
    together,
    parts,
    beside,
    accesses,
    atomics,
    copies,
)
