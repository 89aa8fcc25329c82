"""Tensor cores: wgmma by type, N and source of A, warpgroups together, chains and waits; mma; setmaxnreg."""

from __future__ import annotations

from collections.abc import Iterable

from tests.time.instructions import statements
from tests.time.machine import Figure, Launch, Machine, figure
from tests.time.ptx import loads, timed

K = {"bf16": 16, "f16": 16, "tf32": 8, "e4m3": 32, "s8": 32}
NS = (8, 16, 32, 64, 96, 128, 192, 256)
COUNTS = {"ss": (16, 32), "rs": (4, 12)}
"""Instructions of groups; ptxas gives each that has A in registers registers of its own."""
_A_BYTES = 8 << 10
"""64 rows of 128 bytes, of a warpgroup; B has N such rows."""
_SMEM = 1024 + 3 * _A_BYTES + 256 * 128
_DESCRIPTOR = 1 << 16 | 64 << 32 | 1 << 62
"""Rows of 128 bytes, swizzled by 128 bytes: 1024 bytes between groups of eight rows."""


def _accumulators(n: int, first: int) -> str:
    return "{" + ", ".join(f"%r{index}" for index in range(first, first + n // 2)) + "}"


def wgmma(kind: str, n: int, source: str, step: int, first: int = 100) -> str:
    """Return an instruction of m64nNk32B, whose accumulators begin at a register; `step` says which 32 bytes of K."""
    is_integer = kind == "s8"
    types = f"s32.{kind}.{kind}" if is_integer else f"f32.{kind}.{kind}"
    a = f"%rd{10 + step % 4}" if source == "ss" else "{%r90, %r91, %r92, %r93}"
    b = f"%rd{14 + step % 4}"
    tail = "1" if is_integer else "1, 1, 1"
    if kind in ("bf16", "f16"):
        tail += ", 0, 0" if source == "ss" else ", 0"
    return f"wgmma.mma_async.sync.aligned.m64n{n}k{K[kind]}.{types} {_accumulators(n, first)}, {a}, {b}, {tail};"


def _setup(n: int, sets: int, fill: str) -> str:
    """Return statements that fill A of each warpgroup and B, and set accumulators and descriptors."""
    steps = "\n".join(f"add.u64 %rd{10 + k}, %rd10, {2 * k}; add.u64 %rd{14 + k}, %rd14, {2 * k};" for k in (1, 2, 3))
    zeros = "\n".join(f"mov.b32 %r{index}, 0;" for index in range(100, 100 + n // 2 * sets))
    return f"""{loads(0)}
add.u64 %rd0, %data, 0; mad.lo.u32 %r0, %thread, 16, %base; mul.wide.u32 %rd1, %thread, 16; add.u64 %rd0, %rd0, %rd1;
mad.lo.u32 %r1, %threads, 16, 0; mov.u32 %r2, {_SMEM - 1024}; add.u32 %r2, %r2, %base; cvt.u64.u32 %rd2, %r1;
FILL:
{fill}
st.shared.v4.u32 [%r0], {{%r4, %r5, %r6, %r7}};
add.u32 %r0, %r0, %r1; setp.lt.u32 %p0, %r0, %r2;
@%p0 bra FILL;
fence.proxy.async;
shr.u32 %r8, %warp, 2; mad.lo.u32 %r8, %r8, {_A_BYTES}, %base; shr.u32 %r8, %r8, 4; cvt.u64.u32 %rd10, %r8;
or.b64 %rd10, %rd10, {_DESCRIPTOR};
add.u32 %r9, %base, {3 * _A_BYTES}; shr.u32 %r9, %r9, 4; cvt.u64.u32 %rd14, %r9; or.b64 %rd14, %rd14, {_DESCRIPTOR};
{steps}
{zeros}
mov.u32 %r90, %r4; mov.u32 %r91, %r5; mov.u32 %r92, %r6; mov.u32 %r93, %r7;"""


_ZEROS = "mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;"
# Random bits, of which an exponent's high ones are cleared: bf16 below 2 in size, neither infinite nor NaN.
_RANDOM = """and.b32 %r3, %r0, 0x3FF0; cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %data, %rd3;
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd3];
and.b32 %r4, %r4, 0xBFFFBFFF; and.b32 %r5, %r5, 0xBFFFBFFF; and.b32 %r6, %r6, 0xBFFFBFFF; and.b32 %r7, %r7, 0xBFFFBFFF;
or.b32 %r4, %r4, 0x30003000; or.b32 %r5, %r5, 0x30003000; or.b32 %r6, %r6, 0x30003000; or.b32 %r7, %r7, 0x30003000;"""


def group(
    kind: str,
    n: int,
    source: str = "ss",
    count: int = 1,
    *,
    sets: int = 1,
    left: int = 0,
    threads: int = 128,
    random: bool = False,
) -> str:
    """Return a kernel whose turn is a group of `count` wgmmas, in turns on `sets` accumulators.

    `left` groups may be in flight after each turn.
    """  # fmt: skip
    lines = [wgmma(kind, n, source, index, 100 + n // 2 * (index % sets)) for index in range(count)]
    ends = ["wgmma.commit_group.sync.aligned;", f"wgmma.wait_group.sync.aligned {left};"]
    body = "\n".join(["wgmma.fence.sync.aligned;", *lines, *ends])
    return timed(
        body, setup=_setup(n, sets, _RANDOM if random else _ZEROS), threads=threads,
        drain="wgmma.wait_group.sync.aligned 0;", kept=[f"%r{100 + index}" for index in range(n // 2 * sets)],
    )  # fmt: skip


def _launch(threads: int = 128) -> Launch:
    return Launch(block=threads, smem=_SMEM)


def _between(machine: Machine, kind: str, n: int, source: str, sets: int, threads: int = 128) -> Figure:
    """Return the cycles of an instruction of a long group: those of a longer group less those of a shorter one."""
    counts = COUNTS[source]
    few, many = (
        machine.slope(text, (20, 60), _launch(threads), repetitions=3)
        for text in (group(kind, n, source, count, sets=sets, threads=threads) for count in counts)
    )
    return Figure((many.value - few.value) / (counts[1] - counts[0]), many.spread)


def _sets(n: int) -> int:
    return 2 if n <= 128 else 1


def _cases(machine: Machine) -> list[tuple[str, int, str]]:
    ns: Iterable[int] = (8, 64) if machine.simulated else NS
    kinds = ("bf16", "s8") if machine.simulated else tuple(K)
    return [
        (kind, n, source)
        for kind in kinds for n in ns for source in ("ss", "rs")
        if source == "ss" or n in (64, 128, 256)
    ]  # fmt: skip


def rates(machine: Machine) -> dict[str, object]:
    """Time instructions of every type, N and source of A in long groups."""
    cases = _cases(machine)
    machine.prepare(group(*case, count, sets=_sets(case[1])) for case in cases for count in COUNTS[case[2]])
    table: dict[str, dict[str, dict[str, Figure]]] = {}
    for kind, n, source in cases:
        made = _between(machine, kind, n, source, _sets(n))
        table.setdefault(kind, {}).setdefault(str(n), {})[source] = made
    return {"wgmma.cycles": table}


def warpgroups(machine: Machine) -> dict[str, object]:
    """Time one, two and three warpgroups that share an SM's tensor cores."""
    ns = (64,) if machine.simulated else (64, 128, 192, 256)
    counts = (1, 2) if machine.simulated else (1, 2, 3)
    machine.prepare(
        group("bf16", n, "ss", count, threads=128 * many) for n in ns for count in (16, 32) for many in counts
    )
    return {
        "wgmma.cycles_warpgroups": {
            str(many): {str(n): _between(machine, "bf16", n, "ss", 1, 128 * many).times(1 / many) for n in ns}
            for many in counts
        }
    }


def latency(machine: Machine) -> dict[str, object]:
    """Time instructions that are waited for, dependent chains, groups of four, fences and waits."""
    ns = (8, 64) if machine.simulated else (64, 128, 256)
    kinds = ("bf16",) if machine.simulated else tuple(K)
    every = (8,) if machine.simulated else NS
    machine.prepare(
        [group(kind, n) for kind in kinds for n in ns]
        + [group("bf16", n, "ss", count) for n in every for count in (1, 16, 32)]
        + [group("bf16", n, "ss", 4, left=1) for n in ns]
        + [group("bf16", n, "rs", 1) for n in ns]
    )

    def turn(text: str) -> Figure:
        return machine.slope(text, (50, 150), _launch())

    empty = timed("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n" * 4, threads=128)
    fence = timed("wgmma.fence.sync.aligned;\n" * 4, threads=128)
    return {
        "wgmma.latency": {kind: {str(n): turn(group(kind, n)) for n in ns} for kind in kinds},
        "wgmma.latency_rs": {str(n): turn(group("bf16", n, "rs")) for n in ns},
        "wgmma.chain": {str(n): _between(machine, "bf16", n, "ss", 1) for n in every},
        "wgmma.serial": {str(n): turn(group("bf16", n)) for n in every},
        "wgmma.group4": {str(n): turn(group("bf16", n, "ss", 4, left=1)).times(1 / 4) for n in ns},
        "wgmma.fence": machine.slope(fence, (50, 150), Launch(block=128)).times(1 / 4),
        "wgmma.commit_wait": machine.slope(empty, (50, 150), Launch(block=128)).times(1 / 4),
    }


def _issue(n: int, count: int) -> str:
    """Return a kernel that issues two groups of wgmmas, and sums the cycles of either's issue in %w5 and %w6."""
    lines = "\n".join(wgmma("bf16", n, "ss", index) for index in range(count))
    body = f"""wgmma.fence.sync.aligned;
mov.u64 %rd40, %clock64;
{lines}
wgmma.commit_group.sync.aligned;
mov.u64 %rd41, %clock64;
wgmma.fence.sync.aligned;
{lines}
wgmma.commit_group.sync.aligned;
mov.u64 %rd42, %clock64;
wgmma.wait_group.sync.aligned 0;
sub.u64 %rd43, %rd41, %rd40; add.u64 %w5, %w5, %rd43; sub.u64 %rd43, %rd42, %rd41; add.u64 %w6, %w6, %rd43;"""
    return timed(body, setup=_setup(n, 1, _ZEROS), threads=128, kept=[f"%r{100 + index}" for index in range(n // 2)])


def issue(machine: Machine) -> dict[str, object]:
    """Issue two groups of wgmmas one after the other, each behind a fence: cycles until each has been issued.

    They tell how many wgmmas a warp has in the queue before it stands, and what stands at the fence.
    """
    ns, counts = ((64,), (1, 2)) if machine.simulated else ((64, 128, 256), (1, 2, 4, 8, 16))
    machine.prepare(_issue(n, count) for n in ns for count in counts)
    turns = 2 if machine.simulated else 50
    made: dict[str, dict[str, dict[str, float]]] = {}
    for n in ns:
        for count in counts:
            text, launch = _issue(n, count), _launch()
            machine.records(text, turns, launch)
            words = machine.records(text, turns, launch).words[0, 0]
            found = {name: float(words[at]) / turns for name, at in (("first", 5), ("second", 6))}
            made.setdefault(str(n), {})[str(count)] = found
    return {"wgmma.issue": made}


_COMPANY_CYCLES = 1024
"""Cycles of a turn, of the MMAs and of the statements, if they run alone."""
_COMPANY = {"ffma": 1, "fadd": 1, "fmnmx": 2, "imad": 2, "cvt_bf16x2": 2, "shfl": 4, "ex2": 8}
"""Class of statements -> cycles of one of a sub-partition."""
_SOFTMAX = (("ffma", 2), ("ex2", 2), ("fadd", 2), ("fmnmx", 2), ("cvt_bf16x2", 1))
"""Statements of two scores, whose exponentials take 16 cycles of a sub-partition."""


def _statements(name: str) -> list[str]:
    """Return the statements of a turn of one of two warps of a sub-partition."""
    if name == "chain":  # half as many as the two warps' schedulers could issue
        return statements("ffma", 1, _COMPANY_CYCLES // 4)
    if name != "softmax":
        return statements(name, 8, _COMPANY_CYCLES // _COMPANY[name] // 2)
    turns = _COMPANY_CYCLES // 16 // 2
    made = {kind: statements(kind, 1, turns * each, 2 * n) for n, (kind, each) in enumerate(_SOFTMAX)}
    return [made[kind][turn * each + n] for turn in range(turns) for kind, each in _SOFTMAX for n in range(each)]


def _beside(name: str, n: int, source: str) -> str:
    """Return a kernel whose first warpgroup executes MMAs, unless N is 0, and whose others execute statements."""
    count = _COMPANY_CYCLES // max(n // 2, 1)
    mmas = "\n".join(wgmma("bf16", n, source, index) for index in range(count)) if n else ""
    group = f"wgmma.fence.sync.aligned;\n{mmas}\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
    lines = "\n".join(_statements(name))
    body = f"""@%p30 bra OTHERS;
{group if n else ""}
bra JOINED;
OTHERS:
{lines}
JOINED:"""
    words = "\n".join(f"mov.u32 %r{index}, %r{40 + index % 3};" for index in range(16))
    setup = f"{_setup(max(n, 8), 1, _ZEROS)}\n{loads(43)}\n{words}\nsetp.gt.u32 %p30, %warp, 3;"
    kept = [f"%r{index}" for index in (*range(16), *range(100, 100 + n // 2))]
    return timed(body, setup=setup, kept=kept, threads=384)


def company(machine: Machine) -> dict[str, object]:
    """Execute MMAs by one warpgroup, other instructions by two more: cycles of a turn of 1024 cycles of each alone.

    By N and the source of A, and by class: "mma" of the MMAs, and "others" of the instructions, beside each other.
    "0" has the instructions without MMAs.
    """
    cases = ((64, "ss"),) if machine.simulated else ((64, "ss"), (128, "ss"), (256, "ss"), (128, "rs"))
    names = ("ffma",) if machine.simulated else (*_COMPANY, "chain", "softmax")
    turns = 1 if machine.simulated else 100
    launch = Launch(block=384, smem=_SMEM)
    texts = {(name, *case): _beside(name, *case) for case in ((0, "ss"), *cases) for name in names}
    machine.prepare(texts.values())
    made: dict[str, dict[str, dict[str, Figure]]] = {}
    for (name, n, source), text in texts.items():
        spans = []
        for _ in range(machine.repetitions + 1):
            words = machine.records(text, turns, launch).words[0]
            spans.append(words[:, 1] - words[:, 0])
        found = made.setdefault(f"{source}{n}" if n else "0", {}).setdefault(name, {})
        if n:
            found["mma"] = figure(span[:4].max() / turns for span in spans[-machine.repetitions :])
        found["others"] = figure(span[4:].max() / turns for span in spans[-machine.repetitions :])
    return {"wgmma.company": made}


_MMA = {
    "bf16_m16n8k16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "f16_m16n8k16": "m16n8k16.row.col.f32.f16.f16.f32",
    "tf32_m16n8k8": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "e4m3_m16n8k32": "m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "s8_m16n8k32": "m16n8k32.row.col.s32.s8.s8.s32",
}


def _mma(name: str, chains: int) -> str:
    lines = []
    for index in range(16):
        d = 20 + 4 * (index % chains)
        accumulators = f"{{%r{d}, %r{d + 1}, %r{d + 2}, %r{d + 3}}}"
        a, b = "{%r0, %r1, %r2, %r3}", "{%r4, %r5}"
        lines.append(f"mma.sync.aligned.{_MMA[name]} {accumulators}, {a}, {b}, {accumulators};")
    kept = [f"%r{index}" for index in range(20, 20 + 4 * chains)]
    return timed("\n".join(lines), setup=loads(20 + 4 * chains), kept=kept)


def mma(machine: Machine) -> dict[str, object]:
    """Time mma.sync of warps: chains of one warp, and four chains of each of sixteen warps."""
    machine.prepare(_mma(name, chains) for name in _MMA for chains in (1, 4))
    return {
        "mma.latency": {name: machine.slope(_mma(name, 1), (20, 60)).times(1 / 16) for name in _MMA},
        "mma.cycles": {
            name: machine.slope(_mma(name, 4), (20, 60), Launch(block=512)).times(1 / (16 * 4)) for name in _MMA
        },
    }


def registers(machine: Machine) -> dict[str, object]:
    """Give registers back and take them again, one warpgroup alone."""
    text = timed(
        """mov.u64 %rd1, %clock64;
setmaxnreg.dec.sync.aligned.u32 40;
mov.u64 %rd2, %clock64;
bar.sync 0;
mov.u64 %rd3, %clock64;
setmaxnreg.inc.sync.aligned.u32 152;
mov.u64 %rd4, %clock64;
bar.sync 0;
sub.u64 %rd5, %rd2, %rd1; add.u64 %w5, %w5, %rd5; sub.u64 %rd5, %rd4, %rd3; add.u64 %w6, %w6, %rd5;""",
        threads=128,
    ).replace(".maxntid 128", ".maxntid 128\n.minnctapersm 1\n.maxnreg 152")
    turns = 2 if machine.simulated else 100
    words = machine.records(text, turns, Launch(block=128)).words
    words = machine.records(text, turns, Launch(block=128)).words
    return {"setmaxnreg": {"dec": float(words[0, 0, 5]) / turns, "inc": float(words[0, 0, 6]) / turns}}


BENCHMARKS = (rates, warpgroups, latency, issue, company, mma, registers)
