"""TMA: latency, issue, bytes in flight, boxes, swizzles, multicast, stores and reductions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.time.instructions import clock
from tests.time.machine import Figure, Launch, Machine, figure
from tests.time.ptx import timed, wait

_KIB = 1024
_BARRIERS = 1024
"""Bytes of shared memory before the slots: mbarriers, one a slot."""
_ASKING = 8
"""Warps that share the work of asking for boxes, where that must not bound the rate."""
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%rd20], %r30, [%r21];"
_TENSOR = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r20], [%rd31, {%r22, %r23}], [%r21];"
)
_BULK_PARAMETERS = ", ".join(
    f".param .u32 {name}_" for name in "slots bytes mask first turn apart shift near far".split()
)
_MAP_PARAMETER = ".param .align 64 .b8 map_[128]"
_TENSOR_PARAMETERS = f"{_BULK_PARAMETERS}, {_MAP_PARAMETER}"
_MAP = "mov.u64 %rd30, map_; cvta.param.u64 %rd31, %rd30;"


def _ring(copy: str, parameters: str) -> str:
    """Return a kernel whose warps copy boxes to slots of their own, each reused once its box has come.

    Box i of warp w, of those of all CTAs, is number first + i * turn + w * apart of the memory, modulo a power of two.
    A matrix has 2^shift boxes beside each other. CTAs of a group read the same: `near` is the logarithm of how many of
    them follow each other, `far` masks the number of their group. One warp alone takes some 170 cycles for a turn,
    which bounds the rate of small boxes.
    """
    tensor = copy == _TENSOR
    where = (
        # 64 columns; a box of bytes / 128 rows
        "shr.u32 %r23, %r24, %r36; shl.b32 %r22, %r23, %r36; sub.u32 %r22, %r24, %r22; shl.b32 %r22, %r22, 6; "
        "mul.lo.u32 %r23, %r23, %r34;"
        if tensor
        else "mul.wide.u32 %rd20, %r24, %r30; add.u64 %rd20, %rd20, %data;"
    )
    issue = f"""mad.lo.u32 %r24, %r40, %r37, %r38; and.b32 %r24, %r24, %r31;
mad.lo.u32 %r20, %r41, %r30, %r32; mad.lo.u32 %r21, %r41, 8, %r39;
{where}
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], %r30;
{copy}"""
    # %r40 counts boxes that were asked for, %r41 is the slot, %r42 its parity
    body = f"""mad.lo.u32 %r21, %r41, 8, %r39;
{wait("%r21", "%r42", "WAITS")}
{issue}
add.u32 %r40, %r40, 1; add.u32 %r41, %r41, 1; setp.eq.u32 %p1, %r41, %r33;
@%p1 mov.u32 %r41, 0;
@%p1 xor.b32 %r42, %r42, 1;"""
    setup = f"""ld.param.u32 %r33, [slots_]; ld.param.u32 %r30, [bytes_]; ld.param.u32 %r31, [mask_];
ld.param.u32 %r36, [shift_]; ld.param.u32 %r37, [turn_]; ld.param.u32 %r38, [first_]; {_MAP if tensor else ""}
shr.u32 %r34, %r30, 7; shr.u32 %r35, %threads, 5; mul.lo.u32 %r39, %warp, %r33; ld.param.u32 %r43, [apart_];
mad.lo.u32 %r32, %r39, %r30, %base; add.u32 %r32, %r32, {_BARRIERS}; mad.lo.u32 %r39, %r39, 8, %base;
ld.param.u32 %r44, [near_]; shr.u32 %r44, %cta, %r44; ld.param.u32 %r45, [far_]; and.b32 %r44, %r44, %r45;
mad.lo.u32 %r35, %r44, %r35, %warp; mad.lo.u32 %r38, %r35, %r43, %r38;
mov.u32 %r40, 0; mov.u32 %r41, 0; mov.u32 %r42, 0; setp.ne.u32 %p2, %lane, 0;
@%p2 bra READY;
INIT:
mad.lo.u32 %r21, %r41, 8, %r39; mbarrier.init.shared::cta.b64 [%r21], 1;
add.u32 %r41, %r41, 1; setp.lt.u32 %p1, %r41, %r33;
@%p1 bra INIT;
mov.u32 %r41, 0;
fence.mbarrier_init.release.cluster; fence.proxy.async;
FILL:
{issue}
add.u32 %r40, %r40, 1; add.u32 %r41, %r41, 1; setp.lt.u32 %p1, %r41, %r33;
@%p1 bra FILL;
mov.u32 %r41, 0;
READY:"""
    # what is still in flight must land before the CTA ends
    drain = f"""mov.u32 %r43, 0;
DRAIN:
mad.lo.u32 %r21, %r41, 8, %r39;
{wait("%r21", "%r42", "LAST_WAITS")}
add.u32 %r41, %r41, 1; setp.eq.u32 %p1, %r41, %r33;
@%p1 mov.u32 %r41, 0;
@%p1 xor.b32 %r42, %r42, 1;
add.u32 %r43, %r43, 1; setp.lt.u32 %p1, %r43, %r33;
@%p1 bra DRAIN;
"""
    return timed(body, setup=setup, drain=drain, parameters=parameters, threads=256, idle="%p2")


BULK, TENSOR = _ring(_BULK, _BULK_PARAMETERS), _ring(_TENSOR, _TENSOR_PARAMETERS)
_SHIFT = 6
_COLUMNS = 64 << _SHIFT
_ALL = 0xFFFFFFFF


def ring_launch(
    footprint: int,
    slots: int,
    nbytes: int,
    grid: int,
    *,
    warps: int = 1,
    step: int = 1,
    first: int = 0,
    turn: int | None = None,
    apart: int = 1,
    shift: int = _SHIFT,
    near: int = 0,
    far: int = _ALL,
) -> Launch:
    """Return a launch of a ring over so many bytes, a power of two; each warp has so many slots.

    All warps together read box after box, or every so manieth, unless `turn` and `apart` say otherwise.
    """
    smem = _BARRIERS + warps * slots * nbytes
    turn = step * warps * grid if turn is None else turn
    extra = slots, nbytes, footprint // nbytes - 1, first, turn, step * apart, shift, near, far
    return Launch(grid, 32 * warps, smem, extra=extra)


class Boxes:
    """Rings of boxes over memory of a machine.

    Parameters
    ----------
    machine : Machine
    footprint : int
        Bytes, a power of two, read again and again.
    padding : int
        Bytes after each row of the matrix.
    shift : int
        The matrix has 2^shift boxes of 64 columns beside each other.
    rows : int
        Of the matrix, if it has fewer than the footprint.
    """

    def __init__(
        self, machine: Machine, footprint: int, padding: int = 0, shift: int = _SHIFT, rows: int | None = None
    ) -> None:
        self.machine, self.footprint, self.padding, self.shift = machine, footprint, padding, shift
        self.columns = 64 << shift
        self.rows = footprint // (2 * self.columns) if rows is None else rows
        self.data = machine.zeros(footprint + footprint // (2 * self.columns) * padding)
        self.before: Callable[[], None] = lambda: None

    def launch(self, slots: int, nbytes: int, grid: int, swizzle: str | None = None, **how: Any) -> tuple[str, Launch]:
        """Return the kernel of 1D copies, or of boxes of 64 columns, and its launch; each warp has so many slots."""
        launch = ring_launch(self.footprint, slots, nbytes, grid, shift=self.shift, **how)
        if swizzle is None:
            return BULK, launch
        columns = int(swizzle) // 2 if swizzle not in ("none", "128") else 64
        box = columns, nbytes // (2 * columns)
        tensor_map = self.machine.tensor_map(self.data, self.rows, self.columns, box, swizzle, self.padding)
        return TENSOR, replace(launch, extra=(*launch.extra, tensor_map))

    def turn(self, slots: int, nbytes: int, swizzle: str | None = None, turns: int = 0, **how: Any) -> Figure:
        """Return the cycles of one SM from a box to the next one."""
        text, launch = self.launch(slots, nbytes, 1, swizzle, **how)
        turns = turns or min(400, max(40, (1 << 22) // nbytes))
        made = self.machine.slope(text, (turns, 3 * turns), launch, self.data, self.before, repetitions=5)
        return made.times(1 / how.get("warps", 1))

    def rate(self, slots: int, nbytes: int, swizzle: str | None = None, turns: int = 0, **how: Any) -> Figure:
        """Return the bytes a second of all SMs together."""
        machine, warps = self.machine, how.get("warps", 1)
        text, launch = self.launch(slots, nbytes, machine.sms, swizzle, **how)
        turns = 1 if machine.simulated else turns or min(20_000, (16 << 20) // nbytes // warps)
        samples = []
        for index in range(5):
            self.before()
            seconds = [machine.seconds(text, count, launch, self.data) for count in (turns, 3 * turns)]
            if index:
                samples.append(2 * turns * nbytes * warps * machine.sms / (seconds[1] - seconds[0]))
        return figure(samples)


def _sizes(machine: Machine, first: int, last: int) -> list[int]:
    sizes = [first << power for power in range(20) if first << power <= last]
    return sizes[:2] if machine.simulated else sizes


def _footprints(machine: Machine) -> tuple[int, int]:
    """Return bytes that stay in L2, and bytes that do not."""
    return (1 << 20, 1 << 20) if machine.simulated else (16 << 20, 4 << 30)


def latency(machine: Machine) -> dict[str, object]:
    """Wait for each copy before the next: 1D copies from L2 and from DRAM, boxes from L2, with each swizzle."""
    small, large = _footprints(machine)
    cached, uncached = Boxes(machine, small), Boxes(machine, large)
    uncached.before = machine.flush
    sizes = _sizes(machine, 64, 32 * _KIB)
    boxes = _sizes(machine, _KIB, 32 * _KIB)
    machine.prepare([BULK, TENSOR])
    machine.cycles(BULK, 1 if machine.simulated else small // 2048, cached.launch(4, 2048, 1)[1], cached.data)
    swizzles = {name: cached.turn(1, 8 * _KIB, name) for name in ("none", "32", "64", "128")}
    return {
        "tma.latency": {
            "l2": {str(size): cached.turn(1, size, turns=400) for size in sizes},
            "dram": {str(size): uncached.turn(1, size, turns=200, step=4096 // size + 1) for size in sizes},
        },
        "tma.latency_tensor": {"l2": {str(size): cached.turn(1, size, "128") for size in boxes}},
        "tma.latency_swizzle": swizzles,
    }


def flight(machine: Machine) -> dict[str, object]:
    """Keep some copies in flight: boxes of one SM, asked for by two and by four warps, and of all SMs."""
    boxes = Boxes(machine, _footprints(machine)[0])
    machine.prepare([TENSOR])
    counts, two = (1, 2) if machine.simulated else (1, 2, 3, 4, 5, 6, 8), 2
    warps = _ASKING
    sizes = _sizes(machine, _KIB, 16 * _KIB)
    alone = {count: boxes.turn(count, 8 * _KIB, "128", warps=two) for count in counts}
    hertz = clock(machine)
    everywhere = {}
    for count in (1, 2) if machine.simulated else (1, 2, 3, 4, 6, 8, 12):
        everywhere[str(count)] = boxes.rate(count, 16 * _KIB, "128").times(1 / machine.sms / hertz)
    return {
        "tma.interval": {
            str(size): boxes.turn(max(1, min(4, 192 * _KIB // size // warps)), size, "128", warps=warps)
            for size in sizes
        },
        "tma.bandwidth_in_flight": {str(two * count): _rate(turn, 8 * _KIB) for count, turn in alone.items()},
        "tma.bandwidth_all": everywhere,
    }


def _rate(turn: Figure, nbytes: int) -> Figure:
    return Figure(nbytes / turn.value if turn.value else 0.0, turn.spread)


def little(machine: Machine) -> dict[str, object]:
    """Read by 1D copies with ever more bytes in flight: Little's curve of L2 and of DRAM, of one SM and of all."""
    rings = [(1, 64), (1, 256), (1, 512), (1, 1024), (1, 2048), (2, 2048), (3, 2048), (2, 4096), (3, 4096)]
    rings = [(1, 16), *rings, (4, 4096), (3, 8192)] if not machine.simulated else [(1, 256)]
    table: dict[str, dict[str, Figure]] = {}
    warps = _ASKING
    machine.prepare([BULK])
    for name, footprint in zip(("l2", "dram"), _footprints(machine), strict=True):
        boxes = Boxes(machine, footprint)
        table[f"{name}.little"] = {
            str(warps * slots * size): boxes.rate(slots, size, warps=warps) for slots, size in rings
        }
        if name == "dram":
            boxes.before = machine.flush
        table[f"{name}.little_sm"] = {
            str(warps * slots * size): _rate(boxes.turn(slots, size, warps=warps), size) for slots, size in rings
        }
    best = {
        f"{name}.bandwidth_sm": max(table[f"{name}.little_sm"].values(), key=lambda f: f.value)
        for name in ("l2", "dram")
    }
    return {**table, **best}


def shared(machine: Machine) -> dict[str, object]:
    """Read memory in L2 by all SMs: each box by one SM at a time, or by all SMs at once, of ever more bytes.

    Of few bytes several SMs read a box at once in either case. Last by groups of SMs of 16 MiB: CTAs that follow each
    other, and such whose numbers differ by a power of two.
    """
    made: dict[str, dict[str, Figure]] = {"apart": {}, "same": {}}
    nbytes, slots = (8 * _KIB, 1) if machine.simulated else (16 * _KIB, 6)
    machine.prepare([TENSOR])
    for mib in (1,) if machine.simulated else (1, 2, 4, 8, 16, 32):
        boxes = Boxes(machine, mib << 20)
        for name, how in (("apart", {}), ("same", {"turn": 1, "apart": 0})):
            made[name][str(mib << 20)] = boxes.rate(slots, nbytes, "128", warps=2, **how)
        del boxes
    boxes, warps, groups = Boxes(machine, _footprints(machine)[0]), 2, {"near": {}, "far": {}}
    for power in (1,) if machine.simulated else range(8):
        size = 1 << power
        turn = warps * -(-machine.sms // size)
        groups["near"][str(size)] = boxes.rate(slots, nbytes, "128", warps=warps, turn=turn, near=power)
        far = max(1, 128 >> power)
        groups["far"][str(size)] = boxes.rate(slots, nbytes, "128", warps=warps, turn=warps * far, far=far - 1)
    return {"l2.shared": made, "l2.groups": groups}


_ALONG, _ALONG_PADDING, _NEAR = 10, 1152, 8
"""Boxes beside each other, as 2^n, and bytes after each row, that rows lie in different banks, where CTAs go along.

The last is the n of shorter rows.
"""


def pitches(machine: Machine) -> dict[str, object]:
    """Read boxes of a matrix whose rows are so many bytes longer than a multiple of 128, by all SMs.

    They go across, all SMs beside each other in the same rows; or along, each SM in 64 rows of its own, as the tiles of
    a product do.
    """
    made: dict[str, dict[str, dict[str, Figure]]] = {}
    nbytes = 8 * _KIB
    paddings, slots = ((0, 16), 2) if machine.simulated else ((0, 16, 32, 64), 16)
    for name, footprint in zip(("l2", "dram"), _footprints(machine), strict=True):
        made[name] = {"across": {}, "along": {}}
        shift = _SHIFT if name == "l2" or machine.simulated else _ALONG
        for padding in paddings:
            boxes = Boxes(machine, footprint, padding)
            made[name]["across"][str(padding)] = boxes.rate(slots, nbytes, "128")
            boxes = Boxes(machine, footprint, padding + _ALONG_PADDING * (shift == _ALONG), shift)
            # A CTA reads no more than its own rows.
            turns = 0 if shift == _SHIFT else ((1 << shift) - slots) // 3
            found = boxes.rate(slots, nbytes, "128", turns, turn=1, apart=1 << shift)
            made[name]["along"][str(padding)] = found
            del boxes
    # Shorter rows, of 32 KiB, without and with bytes between them.
    made["dram"]["near"] = {}
    for padding in (0,) if machine.simulated else (0, _ALONG_PADDING):
        shift = _SHIFT if machine.simulated else _NEAR
        boxes = Boxes(machine, _footprints(machine)[1], padding, shift)
        turns = 0 if shift == _SHIFT else ((1 << shift) - slots) // 3
        made["dram"]["near"][str(padding)] = boxes.rate(slots, nbytes, "128", turns, turn=1, apart=1 << shift)
        del boxes
    return {"tma.pitch": made}


def outside(machine: Machine) -> dict[str, object]:
    """Read boxes of 64 rows of a matrix that has fewer: cycles of a box.

    One SM, all SMs in different columns, and all in the same ones. Of 0 rows one box of 64 is inside, and the others
    begin below the matrix.
    """
    made: dict[str, dict[str, Figure]] = {"one": {}, "apart": {}, "same": {}}
    nbytes, slots = 8 * _KIB, 2 if machine.simulated else 8
    hertz = clock(machine)
    for rows in (0, 64) if machine.simulated else (0, 1, 8, 16, 32, 64):
        boxes = Boxes(machine, nbytes << _SHIFT, rows=rows or 64, shift=_SHIFT if rows else 0)
        warps = _ASKING // 2
        made["one"][str(rows)] = boxes.turn(max(1, slots // warps), nbytes, "128", warps=warps)
        for name, how in (("apart", {}), ("same", {"turn": 1, "apart": 0})):
            rate = boxes.rate(slots, nbytes, "128", **how)
            made[name][str(rows)] = Figure(nbytes * machine.sms * hertz / rate.value, rate.spread)
    return {"tma.outside": made}


def short(machine: Machine) -> dict[str, object]:
    """Read boxes of 4 KiB by rows of 16 to 128 bytes, in L2: cycles of a box, of one SM and of all."""
    made: dict[str, dict[str, Figure]] = {"one": {}, "all": {}}
    nbytes, slots, warps = 4 * _KIB, 2 if machine.simulated else 16, 4
    hertz, (footprint, _) = clock(machine), _footprints(machine)
    for columns, swizzle in ((16, "32"), (64, "128")) if machine.simulated else _SHORT:
        boxes = Boxes(machine, footprint)
        # Boxes of short rows reach further down than the last boxes of 64 columns.
        boxes.footprint = footprint // 2
        tensor_map = machine.tensor_map(
            boxes.data, boxes.rows, boxes.columns, (columns, nbytes // 2 // columns), swizzle
        )
        launches = {}
        for name, grid in (("one", 1), ("all", machine.sms)):
            launch = ring_launch(boxes.footprint, max(1, slots // warps), nbytes, grid, warps=warps)
            launches[name] = replace(launch, extra=(*launch.extra, tensor_map))
        made["one"][str(2 * columns)] = machine.slope(TENSOR, (200, 600), launches["one"], boxes.data).times(1 / warps)
        turns, samples = 1 if machine.simulated else 1000, []
        for _ in range(machine.repetitions):
            seconds = [machine.seconds(TENSOR, count, launches["all"], boxes.data) for count in (turns, 3 * turns)]
            samples.append((seconds[1] - seconds[0]) * hertz / (2 * turns * warps))
        made["all"][str(2 * columns)] = figure(samples)
        del boxes
    return {"tma.short": made}


_SHORT = ((8, "none"), (16, "32"), (32, "64"), (64, "128"))
"""Columns of a box, and its swizzle."""


def issue(machine: Machine) -> dict[str, object]:
    """Issue 16 and 48 copies of 64 bytes or 1 KiB to one mbarrier: the clocks are read before they have come."""
    boxes = Boxes(machine, 1 << 20)
    made: dict[str, Figure] = {}
    for name, copy, nbytes, parameters in (
        ("bulk", _BULK, 64, _BULK_PARAMETERS), ("tensor", _TENSOR, 1024, _TENSOR_PARAMETERS),
    ):  # fmt: skip
        text = timed(
            f"add.u32 %r23, %r23, 1; and.b32 %r23, %r23, 7;\n{copy}\nadd.u32 %r20, %r20, %r30;",
            setup=f"""{_MAP if name == "tensor" else ""} ld.param.u32 %r30, [bytes_]; mov.u32 %r21, %base;
add.u32 %r20, %base, 1024; mov.u64 %rd20, %data; mov.u32 %r22, 0; mov.u32 %r23, 0; setp.ne.u32 %p2, %thread, 0;
mul.lo.u32 %r40, %r30, %n;
@%p2 bra READY;
mbarrier.init.shared::cta.b64 [%r21], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], %r40;
READY:""",
            finish="@%p2 bra DONE;\n" + wait("%r21", "0", "WAITS") + "\nDONE:",
            parameters=parameters, threads=32, idle="%p2",
        )  # fmt: skip
        _, launch = boxes.launch(48, nbytes, 1, None if name == "bulk" else "128")
        made[name] = machine.slope(text, (16, 48), launch, boxes.data)
    return {"tma.issue": made}


_SYNC = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"


def _multicast(size: int, tensor: bool) -> str:
    """Return a ring in which every CTA of a cluster sends its part of each box to all, by rows of a matrix if `tensor`.

    One warp asks for boxes as soon as all CTAs have read the slot's last, another one reads: it waits for boxes and
    tells all CTAs, without a fence, as it has read nothing.
    """
    peers = "\n".join(
        f"mapa.shared::cluster.u32 %r25, %r27, {rank}; mbarrier.arrive.shared::cluster.b64 _, [%r25];"
        for rank in range(size)
    )
    where, what = "mul.wide.u32 %rd20, %r24, %r35; add.u64 %rd20, %rd20, %data;", "[%r20], [%rd20], %r35, [%r21], %h1;"
    if tensor:  # of 64 columns
        where, what = "shr.u32 %r23, %r35, 7; mul.lo.u32 %r23, %r24, %r23;", "[%r20], [%rd31, {0, %r23}], [%r21], %h1;"
    issue = f"""and.b32 %r24, %r40, %r31; mad.lo.u32 %r24, %r24, {size}, %r44; {where}
mad.lo.u32 %r20, %r41, %r30, %r32; mad.lo.u32 %r20, %r44, %r35, %r20; mad.lo.u32 %r21, %r41, 8, %base;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], %r30;
cp.async.bulk.{"tensor.2d." * tensor}shared::cluster.global{".tile" * tensor}
.mbarrier::complete_tx::bytes.multicast::cluster {what}"""
    body = f"""mad.lo.u32 %r21, %r41, 8, %base; add.u32 %r27, %r21, 512;
@%p3 bra READS;
{wait("%r27", "%r42", "FREE")}
{issue}
bra JOINED;
READS:
{wait("%r21", "%r42", "WAITS")}
{peers}
JOINED:
add.u32 %r40, %r40, 1; add.u32 %r41, %r41, 1; setp.eq.u32 %p1, %r41, %r33;
@%p1 mov.u32 %r41, 0;
@%p1 xor.b32 %r42, %r42, 1;"""
    setup = f"""ld.param.u32 %r33, [slots_]; ld.param.u32 %r30, [bytes_]; ld.param.u32 %r31, [mask_];
{_MAP if tensor else ""}
mov.u32 %r44, %cluster_ctarank; div.u32 %r35, %r30, {size}; mov.u16 %h1, {(1 << size) - 1};
add.u32 %r32, %base, {_BARRIERS}; mov.u32 %r40, 0; mov.u32 %r41, 0; mov.u32 %r42, 0;
setp.ne.u32 %p2, %lane, 0; setp.ne.u32 %p3, %warp, 0; setp.ne.u32 %p4, %thread, 0;
@%p4 bra SET;
INIT:
mad.lo.u32 %r21, %r41, 8, %base; mbarrier.init.shared::cta.b64 [%r21], 1;
add.u32 %r27, %r21, 512; mbarrier.init.shared::cta.b64 [%r27], {size};
add.u32 %r41, %r41, 1; setp.lt.u32 %p1, %r41, %r33;
@%p1 bra INIT;
mov.u32 %r41, 0;
fence.mbarrier_init.release.cluster; fence.proxy.async;
SET:
bar.warp.sync -1;
{_SYNC}
@%p4 bra READY;
FILL:
{issue}
add.u32 %r40, %r40, 1; add.u32 %r41, %r41, 1; setp.lt.u32 %p1, %r41, %r33;
@%p1 bra FILL;
mov.u32 %r41, 0;
READY:
bar.warp.sync -1;"""
    # The reader has left as many boxes as there are slots.
    drain = f"""mov.u32 %r43, 0;
@!%p3 bra DRAINED;
DRAIN:
mad.lo.u32 %r21, %r41, 8, %base;
{wait("%r21", "%r42", "LAST_WAITS")}
add.u32 %r41, %r41, 1; setp.eq.u32 %p1, %r41, %r33;
@%p1 mov.u32 %r41, 0;
@%p1 xor.b32 %r42, %r42, 1;
add.u32 %r43, %r43, 1; setp.lt.u32 %p1, %r43, %r33;
@%p1 bra DRAIN;
DRAINED:"""
    return timed(
        body, setup=setup, drain=drain, finish=f"bar.warp.sync -1;\n{_SYNC}",
        parameters=_TENSOR_PARAMETERS if tensor else _BULK_PARAMETERS,
        threads=64, idle="%p2",
    )  # fmt: skip


def multicast(machine: Machine) -> dict[str, object]:
    """Share 16 KiB among the CTAs of a cluster: each sends its part to all, after all have read the slot's last.

    The latency is that of a ring of one slot: a box comes, and all CTAs are told. All SMs load at once for
    ``bandwidth_all``.
    """
    small, nbytes = _footprints(machine)[0], 16 * _KIB
    data = machine.zeros(small)
    made: dict[str, dict[str, dict[str, Figure]]] = {}
    for name, tensor in (("tma.multicast", False), ("tma.multicast_tensor", True)):
        made[name] = {}
        for size in (2,) if machine.simulated else (2, 4):
            text, boxes = _multicast(size, tensor), small // nbytes - 1
            maps = (machine.tensor_map(data, small // 128, 64, (64, nbytes // 128 // size), "128"),) * tensor

            def turn(
                slots: int, grid: int, text: str = text, extra: Any = (boxes, *[0] * 6, *maps), n: int = size
            ) -> Figure:
                smem = _BARRIERS + slots * nbytes
                launch = Launch(grid, 64, smem, cluster=n, extra=(slots, nbytes, *extra))
                return machine.slope(text, (100, 300), launch, data)

            made[name][str(size)] = {
                "latency": turn(1, size),
                "bandwidth": _rate(turn(8, size), nbytes),
                "bandwidth_all": _rate(turn(8, machine.sms // 8 * 8 or size), nbytes),
            }
    return {**made}


_STORE_BULK = """mad.lo.u32 %r24, %i, %ctas, %cta; and.b32 %r24, %r24, %r31;
mul.wide.u32 %rd20, %r24, %r30; add.u64 %rd20, %rd20, %data;
"""


def _store(line: str, slots: int, waited: str, setup: str = "", parameters: str = "") -> str:
    return timed(f"""{line}
cp.async.bulk.commit_group; cp.async.bulk.wait_group{waited} {slots};""",
        setup=f"""ld.param.u32 %r30, [bytes_]; ld.param.u32 %r31, [mask_]; setp.ne.u32 %p2, %thread, 0; {setup}
mov.u32 %r41, 0; mad.lo.u32 %r42, %thread, 4, %base; mov.u32 %r43, 0;
CLEAR:
st.shared.u32 [%r42], %r43; add.u32 %r41, %r41, 128; add.u32 %r42, %r42, 128; setp.lt.u32 %p1, %r41, %r30;
@%p1 bra CLEAR;
fence.proxy.async; bar.warp.sync -1;""",
        drain="cp.async.bulk.wait_group 0;" if slots else "",
        parameters=f"{_BULK_PARAMETERS}, {parameters}" if parameters else _BULK_PARAMETERS, threads=32, idle="%p2",
    )  # fmt: skip


def stores(machine: Machine) -> dict[str, object]:
    """Store and reduce by 1D copies: each waited for, and four in flight of one SM and of all."""
    small = _footprints(machine)[0]
    data = machine.zeros(small)
    store = _STORE_BULK + "cp.async.bulk.global.shared::cta.bulk_group [%rd20], [%base], %r30;"
    add = _STORE_BULK + "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd20], [%base], %r30;"
    sizes = _sizes(machine, 512, 32 * _KIB)
    texts = {
        name: _store(store, 0, waited) for name, waited in (("store_latency", ""), ("store_read_latency", ".read"))
    }
    many = {"store": _store(store, 3, ".read"), "reduce": _store(add, 3, ".read")}
    machine.prepare([*texts.values(), *many.values()])

    def launch(nbytes: int, grid: int) -> Launch:
        return Launch(grid, 32, nbytes + 1024, extra=(1, nbytes, small // nbytes - 1, 0, 0, 0, 0, 0, 0))

    made: dict[str, object] = {
        f"tma.{name}": {str(size): machine.slope(text, (40, 120), launch(size, 1), data) for size in sizes}
        for name, text in texts.items()
    }
    size = 16 * _KIB
    for name, text in many.items():
        made[f"tma.{name}_bandwidth"] = _rate(machine.slope(text, (100, 300), launch(size, 1), data), size)
        turns = 1 if machine.simulated else 500
        samples = []
        for _ in range(machine.repetitions):
            seconds = [machine.seconds(text, count, launch(size, machine.sms), data) for count in (turns, 3 * turns)]
            samples.append(2 * turns * size * machine.sms / (seconds[1] - seconds[0]))
        made[f"tma.{name}_bandwidth_all"] = figure(samples)
    return made


_STORED_ROWS = 64
_STORE_ROWS = """mad.lo.u32 %r24, %cta, %r33, %i; and.b32 %r24, %r24, %r31; shr.u32 %r23, %r24, 6;
shl.b32 %r23, %r23, 6; and.b32 %r24, %r24, 63; mul.lo.u32 %r22, %r24, %r34;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd31, {%r22, %r23}], [%base];"""
_STORE_SETUP = f"ld.param.u32 %r33, [each_]; ld.param.u32 %r34, [columns_]; {_MAP}"


def rows(machine: Machine) -> dict[str, object]:
    """Store boxes of 64 rows of 16 to 128 bytes by all SMs: a CTA's follow each other in the rows of a matrix.

    Rows of the matrix begin with a sector of 32 bytes; of those of a box the others do not, where they have parts of
    sectors. The matrix is in L2, or larger.
    """
    made: dict[str, dict[str, Figure]] = {}
    text = _store(_STORE_ROWS, 3, ".read", _STORE_SETUP, ".param .u32 each_, .param .u32 columns_, " + _MAP_PARAMETER)
    machine.prepare([text])
    for name, footprint in (("l2", 16 << 20), ("dram", 1 << 30)):
        made[name] = {}
        for width in (48,) if machine.simulated else range(16, 144, 16):
            boxes = 128 if machine.simulated else 1 << (footprint // (_STORED_ROWS * width)).bit_length() - 1
            columns, count = 32 * width, boxes // 64 * _STORED_ROWS
            data, each = machine.zeros(2 * columns * count), max(1, boxes // machine.sms)
            tensor_map = machine.tensor_map(data, count, columns, (width // 2, _STORED_ROWS), "none")
            size = _STORED_ROWS * width
            extra = (1, size, boxes - 1, 0, 0, 0, 0, 0, 0, each, width // 2, tensor_map)
            launch = Launch(machine.sms, 32, size + 1024, extra=extra)
            turns = 1 if machine.simulated else 500
            samples = []
            for _ in range(machine.repetitions):
                seconds = [machine.seconds(text, turn, launch, data) for turn in (turns, 3 * turns)]
                samples.append(2 * turns * size * machine.sms / (seconds[1] - seconds[0]))
            made[name][str(width)] = figure(samples)
            del data
    return {"tma.store_rows": made}


BENCHMARKS = (latency, flight, little, shared, pitches, outside, issue, multicast, stores, rows, short)
