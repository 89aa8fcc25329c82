"""Latency and interval of instructions, one class at a time; pairs of pipelines; straight-line code; branches."""

from __future__ import annotations

import numpy as np

from tests.time.machine import Figure, Launch, Machine, figure
from tests.time.ptx import loads, timed

# Two statements each: they take turns, each needs the other's result. ptxas must find nothing to fold, so that a
# statement stays one SASS instruction of the named opcodes. %r40 to %r42 hold data, %p1 and %p2 differ between lanes.
CLASSES: dict[str, tuple[str, str, str]] = {
    "fadd": ("add.f32 {x}, {x}, {y};", "add.f32 {y}, {y}, {x};", "FADD"),
    "fmul": ("mul.f32 {x}, {x}, {y};", "mul.f32 {y}, {y}, {x};", "FMUL"),
    "ffma": ("fma.rn.f32 {x}, {x}, %r40, {y};", "fma.rn.f32 {y}, {y}, %r40, {x};", "FFMA"),
    "fmnmx": ("max.f32 {x}, {x}, {y};", "min.f32 {y}, %r40, {x};", "FMNMX"),
    "imad": ("mad.lo.s32 {x}, {x}, %r40, {y};", "mad.lo.s32 {y}, {y}, %r40, {x};", "IMAD"),
    # the high half must be needed, too, or ptxas makes other instructions
    "imad_wide": (
        "mul.wide.u32 {wx}, {x}, %r40; mov.b64 {{{y}, %r60}}, {wx}; xor.b32 {z}, {z}, %r60;",
        "mul.wide.u32 {wx}, {y}, %r40; mov.b64 {{{x}, %r60}}, {wx}; xor.b32 {z}, {z}, %r60;",
        "IMAD.WIDE",
    ),
    "iadd3": (
        "add.s32 {x}, {x}, {y}; add.s32 {x}, {x}, %r40;",
        "add.s32 {y}, {y}, {x}; add.s32 {y}, {y}, %r41;",
        "IADD3",
    ),
    "lop3": ("lop3.b32 {x}, {x}, {y}, %r40, 0xE8;", "lop3.b32 {y}, {y}, {x}, %r41, 0x96;", "LOP3"),
    "shf": ("shf.l.wrap.b32 {x}, {x}, {y}, %r40;", "shf.l.wrap.b32 {y}, {y}, {x}, %r40;", "SHF"),
    "prmt": ("prmt.b32 {x}, {x}, {y}, %r40;", "prmt.b32 {y}, {y}, {x}, %r40;", "PRMT"),
    "setp_sel": (
        "setp.gt.s32 %p3, {x}, {y}; selp.b32 {x}, %r40, {x}, %p3;",
        "setp.gt.s32 %p4, {y}, {x}; selp.b32 {y}, %r41, {y}, %p4;",
        "SEL",
    ),
    "hfma2": ("fma.rn.f16x2 {x}, {x}, %r40, {y};", "fma.rn.f16x2 {y}, {y}, %r40, {x};", "HFMA2"),
    "hadd2": ("add.f16x2 {x}, {x}, {y};", "add.f16x2 {y}, {y}, {x};", "HADD2 HFMA2"),
    "ex2": ("ex2.approx.ftz.f32 {y}, {x};", "ex2.approx.ftz.f32 {x}, {y};", "MUFU.EX2"),
    # a reciprocal of a reciprocal is folded; the addition's latency is taken away again
    "rcp": (
        "rcp.approx.ftz.f32 {y}, {x}; add.f32 {y}, {y}, %r40;",
        "rcp.approx.ftz.f32 {x}, {y}; add.f32 {x}, {x}, %r40;",
        "MUFU.RCP",
    ),
    "rsqrt": ("rsqrt.approx.ftz.f32 {y}, {x};", "rsqrt.approx.ftz.f32 {x}, {y};", "MUFU.RSQ"),
    "lg2": ("lg2.approx.ftz.f32 {y}, {x};", "lg2.approx.ftz.f32 {x}, {y};", "MUFU.LG2"),
    "tanh": ("tanh.approx.f32 {y}, {x};", "tanh.approx.f32 {x}, {y};", "MUFU.TANH"),
    "cvt_bf16x2": ("cvt.rn.bf16x2.f32 {x}, {x}, {y};", "cvt.rn.bf16x2.f32 {y}, {y}, {x};", "F2FP"),
    "cvt_f16x2": ("cvt.rn.f16x2.f32 {x}, {x}, {y};", "cvt.rn.f16x2.f32 {y}, {y}, {x};", "F2FP"),
    "cvt_e4m3x2": (
        "cvt.rn.satfinite.e4m3x2.f32 %h0, {x}, {y}; cvt.u32.u16 {x}, %h0;",
        "cvt.rn.satfinite.e4m3x2.f32 %h0, {y}, {x}; cvt.u32.u16 {y}, %h0;",
        "F2FP",
    ),
    "f2i": ("cvt.rni.s32.f32 {y}, {x};", "cvt.rni.s32.f32 {x}, {y};", "F2I"),
    "i2f": ("cvt.rn.f32.s32 {y}, {x};", "cvt.rn.f32.s32 {x}, {y};", "I2F"),
    "popc": ("popc.b32 {y}, {x};", "popc.b32 {x}, {y};", "POPC"),
    "shfl": ("shfl.sync.bfly.b32 {y}, {x}, 1, 31, -1;", "shfl.sync.bfly.b32 {x}, {y}, 1, 31, -1;", "SHFL"),
    "redux": ("redux.sync.add.s32 {y}, {x}, -1;", "redux.sync.add.s32 {x}, {y}, -1;", "REDUX"),
    "vote": (
        "setp.gt.s32 %p3, {x}, %r40; vote.sync.ballot.b32 {y}, %p3, -1;",
        "setp.gt.s32 %p4, {y}, %r41; vote.sync.ballot.b32 {x}, %p4, -1;",
        "VOTE",
    ),
    "dfma": ("fma.rn.f64 {wx}, {wx}, %rd90, {wy};", "fma.rn.f64 {wy}, {wy}, %rd90, {wx};", "DFMA"),
}
_SETUP = (
    loads(43)
    + "\nsetp.gt.s32 %p1, %r41, 0; setp.gt.s32 %p2, %r42, 0; cvt.u64.u32 %rd90, %r40;\n"
    + "\n".join(f"mov.u32 %r{64 + index}, %r{index};" for index in range(32))
    + "\n"
    + "\n".join(f"cvt.u64.u32 %rd{10 + index}, %r{index};" for index in range(32))
)
UNROLL = 64


def statements(name: str, pairs: int, count: int, first: int = 0) -> list[str]:
    """Return `count` statements of a class, in `pairs` independent chains."""
    made = []
    for index in range(count):
        x = first + 2 * (index % pairs)
        places = {"x": f"%r{x}", "y": f"%r{x + 1}", "z": f"%r{64 + x}", "wx": f"%rd{10 + x}", "wy": f"%rd{11 + x}"}
        made.append(CLASSES[name][index // pairs % 2].format(**places))
    return made


def chain(name: str, pairs: int, count: int = UNROLL) -> str:
    """Return the kernel that times a class in `pairs` independent chains."""
    return _kernel(statements(name, pairs, count), pairs, {"dfma": "wide", "imad_wide": "halves"}.get(name, "word"))


def _kernel(lines: list[str], pairs: int, kind: str = "word", setup: str = _SETUP) -> str:
    finish, kept = "", [f"%r{index}" for index in range(2 * pairs)]
    if kind == "halves":
        kept += [f"%r{64 + index}" for index in range(0, 2 * pairs, 2)]
    if kind == "wide":
        finish = "\n".join(
            f"mov.b64 {{%r{index}, %r60}}, %rd{10 + index}; xor.b32 %r{index}, %r{index}, %r60;"
            for index in range(2 * pairs)
        )
    return timed("\n".join(lines), setup=setup, finish=finish, kept=kept)


def clock(machine: Machine) -> float:
    """Return the SMs' clock now, in Hz."""
    records = machine.records(chain("ffma", 4), 2 if machine.simulated else 20_000, Launch(machine.sms, 256))
    return float(np.median(records.cycles)) / records.span_ns * 1e9


def classes(machine: Machine) -> dict[str, object]:
    """Time every class: a chain of one warp, chains of all warps, independent instructions of one warp."""
    latency, interval, alone = {}, {}, {}
    machine.prepare(chain(name, pairs) for name in CLASSES for pairs in (1, 4, 8))
    for name in CLASSES:
        latency[name] = machine.slope(chain(name, 1), (20, 60)).times(1 / UNROLL)
        interval[name] = machine.slope(chain(name, 4), (20, 60), Launch(block=1024)).times(1 / (8 * UNROLL))
        alone[name] = machine.slope(chain(name, 8), (20, 60)).times(1 / UNROLL)
    latency["rcp"] = Figure(latency["rcp"].value - latency["fadd"].value, latency["rcp"].spread)
    return {"instr.latency": latency, "instr.interval": interval, "instr.interval_one_warp": alone}


def warps(machine: Machine) -> dict[str, object]:
    """Time chains of FFMA in one and more warps of a sub-partition."""
    text = chain("ffma", 1)
    counts = (1,) if machine.simulated else (1, 2, 3, 4, 6, 8)
    return {
        "instr.chain_interval": {
            str(count): machine.slope(text, (20, 60), Launch(block=128 * count)).times(1 / (count * UNROLL))
            for count in counts
        }
    }


def _dual(first: str, second: str) -> str:
    lines = []
    other = statements(second, 4, UNROLL // 2, 8) if second != "lds" else []
    for index, line in enumerate(statements(first, 4, UNROLL // 2)):
        lines.append(line)
        lines.append(
            other[index] if other else f"ld.volatile.shared.u32 %r{20 + index % 8}, [%r61+{128 * (index % 8)}];"
        )
    setup = _SETUP + "\nshl.b32 %r61, %lane, 2; add.u32 %r61, %r61, %base;"
    if not other:
        setup += "\nsetp.eq.u32 %p5, %warp, 0;\n" + "\n".join(
            f"@%p5 st.shared.u32 [%r61+{128 * index}], %r0;" for index in range(8)
        )
    return _kernel(lines, 8, setup=setup)


def dual(machine: Machine) -> dict[str, object]:
    """Time instructions of two pipelines, in turns."""
    pairs = [("ffma", "iadd3"), ("ffma", "ex2"), ("ffma", "imad"), ("ffma", "lds"), ("hfma2", "ffma")]
    launch = Launch(block=1024, smem=4096)
    machine.prepare(_dual(*pair) for pair in pairs)
    return {
        "instr.dual": {
            f"{a}+{b}": machine.slope(_dual(a, b), (20, 60), launch).times(1 / (8 * UNROLL // 2)) for a, b in pairs
        }
    }


def straight(machine: Machine) -> dict[str, object]:
    """Time loops of growing size, one warp in each sub-partition: instruction caches."""
    sizes = (2, 4) if machine.simulated else (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256)
    texts = {size: chain("ffma", 8, size * 1024 // 16) for size in sizes}
    machine.prepare(texts.values())
    return {
        "icache.interval": {
            str(size * 1024): machine.slope(text, (4, 12), Launch(block=128)).times(1 / (size * 1024 // 16))
            for size, text in texts.items()
        }
    }


def branch(machine: Machine) -> dict[str, object]:
    """Time loops of 8 and of 16 dependent FFMAs: what is more than the FFMAs is the branch."""
    short, long = (machine.slope(chain("ffma", 1, count), (200, 1200)) for count in (8, 16))
    return {"branch.latency": short.value - (long.value - short.value)}


def chains(machine: Machine) -> dict[str, object]:
    """Time instructions in so many chains of each of eight warps of a sub-partition, and pairs of classes in turns."""
    counts = (1,) if machine.simulated else (1, 2, 3, 4, 6, 8)
    names = ("ffma",) if machine.simulated else ("ffma", "fadd", "fmnmx", "imad")
    launch = Launch(block=1024)
    machine.prepare(chain(name, count) for name in names for count in counts)
    return {
        "instr.chains": {
            name: {
                str(count): machine.slope(chain(name, count), (20, 60), launch).times(1 / (8 * UNROLL))
                for count in counts
            }
            for name in names
        }
    }


_LINKS = 12
"""Jumps of a turn, each over code that is never executed, to four dependent instructions."""


def _jumping(skipped_bytes: int) -> str:
    """Return a kernel of two turns of jumps over so much code, whose cycles it keeps apart."""
    links = []
    for link in range(_LINKS):
        skipped = "\n".join(statements("ffma", 8, skipped_bytes // 16, 8))
        jump = f"@%p6 bra LINK{link};\n{skipped}\nLINK{link}:\n" if skipped else ""
        links.append(jump + "\n".join(statements("ffma", 1, 4)))
    body = "\n".join(links)
    return timed(
        f"""mov.u64 %rd80, %clock64;
{body}
mov.u64 %rd81, %clock64; sub.u64 %rd81, %rd81, %rd80; setp.eq.u32 %p1, %i, 0;
@%p1 mov.u64 %w5, %rd81;
@!%p1 mov.u64 %w6, %rd81;""",
        setup=loads(43) + "\nsetp.ne.u32 %p6, %n, 0x7FFFFFFF;", kept=[f"%r{index}" for index in range(24)],
    )  # fmt: skip


def jumps(machine: Machine) -> dict[str, object]:
    """Jump over code in a launch's first turn and in its second, on all SMs: cycles of a jump by the bytes skipped."""
    sizes = (128,) if machine.simulated else (128, 256, 512, 1024, 2048)
    texts = {size: _jumping(size) for size in (0, *sizes)}
    machine.prepare(texts.values())
    launch, spans = Launch(machine.sms, 128), {}
    for size, text in texts.items():
        found = machine.sequence(text, 2, launch, 2 if machine.simulated else 20)
        spans[size] = [figure(float(np.median(each.words[:, :, at])) for each in found) for at in (5, 6)]
    return {
        "branch.jump": {
            name: {
                str(size): Figure((spans[size][n].value - spans[0][n].value) / _LINKS, spans[size][n].spread)
                for size in sizes
            }
            for n, name in enumerate(("first", "second"))
        }
    }


BENCHMARKS = (classes, warps, dual, chains, straight, branch, jumps)
