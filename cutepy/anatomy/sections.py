"""Sections of an explanation, from which text and page are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cutepy.anatomy.model import (
    Barrier,
    Copy,
    CostlyAccess,
    Kernel,
    LaunchFacts,
    Mma,
    Operand,
    Party,
    Region,
    SlowPlace,
)
from cutepy.anatomy.tiles import box_picture, first_rows, operand_pictures, pictured, tensor_picture, tile_layout
from cutepy.anatomy.words import UNKNOWN, addresses, extents, place, several
from cutepy.layouts.render import Picture
from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.layouts.sm90.arch import WARP_THREADS


class Entry(NamedTuple):
    """One explained item.

    Attributes
    ----------
    title : str
    facts : tuple of (str, str)
        Names and texts; a name may be empty.
    picture : Picture or None
        A small one, for text.
    large : Picture or None
        The same in full, for a page.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    picture: Picture | None = None
    large: Picture | None = None


class Section(NamedTuple):
    """A heading, a remark, and its entries."""

    title: str
    remark: str
    entries: tuple[Entry, ...]


def sections(kernel: Kernel) -> tuple[Section, ...]:
    """Make the sections of a kernel."""
    every = [
        Section("Launch", "", (Entry("", tuple(_launch(kernel.launch))),)),
        Section("Registers", "", (Entry("", tuple(_registers(kernel))),)),
        *_slow_places(kernel),
        Section("Advisories of ptxas", _advice_remark(kernel), tuple(map(_advisory, kernel.advisories))),
        Section("MMAs", "" if kernel.mmas else "none", tuple(_mmas(kernel))),
        Section("Asynchronous copies", "" if kernel.copies else "none", tuple(_copies(kernel))),
        Section("Barriers", "" if kernel.barriers else "none", tuple(_barrier(b) for b in kernel.barriers)),
        Section("Shared memory", _smem_remark(kernel), tuple(_region(r) for r in kernel.regions)),
    ]
    if kernel.allocations:
        remark = "" if kernel.simulated else "who writes and reads it is known at launch"
        every.append(Section("Tensor memory", remark, tuple(_tmem(kernel))))
    if kernel.simulated:
        remark = "" if kernel.accesses else "no uncoalesced access, no bank conflict"
        every.append(Section("Costly accesses", remark, tuple(map(_access, kernel.accesses))))
    if kernel.unread:
        every.append(Section("What could not be read", "", tuple(Entry(text) for text in kernel.unread)))
    return tuple(every)


def _launch(launch: LaunchFacts) -> Iterator[tuple[str, str]]:
    if launch.launches is not None:
        yield "launches", str(launch.launches)
    yield "grid", ", ".join(map(extents, launch.grids)) or UNKNOWN
    block = UNKNOWN
    if launch.block is not None:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        block = f"{extents(launch.block)}: {several(-(-threads // WARP_THREADS), 'warp')}"
    elif launch.max_threads:
        block = f"{UNKNOWN}; at most {launch.max_threads} threads"
    yield "block", block
    yield "cluster", extents(launch.cluster) if launch.cluster else UNKNOWN
    dynamic = UNKNOWN if launch.dynamic_smem_bytes is None else f"{launch.dynamic_smem_bytes} bytes"
    yield "shared memory", f"{launch.static_smem_bytes} bytes static; dynamic: {dynamic}"


def _registers(kernel: Kernel) -> Iterator[tuple[str, str]]:
    found = kernel.resources
    if found is None:
        yield "not known", kernel.unassembled
    else:
        yield "registers", f"{found.registers} a thread ({found.assembler})"
        spills = f"{found.spill_store_bytes} bytes stored, {found.spill_load_bytes} loaded"
        none = not (found.spill_store_bytes or found.spill_load_bytes)
        yield "spills", f"{'none' if none else spills}; stack frame of {found.stack_bytes} bytes"
        fits = UNKNOWN
        if found.ctas_per_sm is not None:
            fits = f"{several(found.ctas_per_sm, 'CTA')} an SM, limited by {' and '.join(found.limited_by)}"
        yield "occupancy", fits
    for change in kernel.register_changes:
        count = UNKNOWN if change.registers is None else str(change.registers)
        yield f"setmaxnreg.{change.direction}", f"to {count}, at {place(change.site)}"


def _advice_remark(kernel: Kernel) -> str:
    if kernel.advisories:
        return ""
    return f"not known: {kernel.unassembled}" if kernel.unassembled else "none"


def _advisory(advisory: object) -> Entry:
    code, text, sites = advisory.code, advisory.text, advisory.sites  # type: ignore[attr-defined]
    return Entry(f"{code}: {text}", tuple(("at", place(site)) for site in sites))


def _slow_places(kernel: Kernel) -> Iterator[Section]:
    title = "Slow places"
    if kernel.predicted_us is None:
        if kernel.unpredicted:
            yield Section(title, f"not predicted: {kernel.unpredicted}", ())
        return
    whole = f"{kernel.predicted_us:.2f} us predicted on one {kernel.predicted_gpu.upper()}"
    remark = (
        f"of {whole}, with and without each; their costs do not add up" if kernel.slow_places else f"none of {whole}"
    )
    remark += f"; {kernel.unpredicted}" if kernel.unpredicted else ""
    yield Section(title, remark, tuple(map(_slow_place, kernel.slow_places)))


def _slow_place(slow: SlowPlace) -> Entry:
    facts = (("at", place(slow.site)), ("is", slow.said), ("to do", slow.remedy))
    return Entry(f"{slow.kind}: {slow.us:.2f} us, {slow.us / slow.of_us:.0%}", facts)


def _access(access: CostlyAccess) -> Entry:
    title, unit = {
        "global": ("uncoalesced access to global memory", "sectors of 32 bytes"),
        "shared": ("bank conflict in shared memory", "wavefronts"),
    }[access.space]
    facts = (
        ("at", place(access.site)),
        ("instruction", f"{access.opcode}, {several(access.warps, 'execution')} by warps"),
        ("cost", f"{access.taken} {unit}, where {access.fewest} would do: {access.taken / access.fewest:.3g} times"),
    )
    return Entry(title, facts)


def _mmas(kernel: Kernel) -> Iterator[Entry]:
    drawn: set[object] = set()
    for mma in kernel.mmas:
        yield _mma(mma, drawn)


def _mma(mma: Mma, drawn: set[object]) -> Entry:
    facts = [("at", place(mma.site))]
    if mma.shape_mnk is None or mma.b is None or mma.a is None:
        counted = several(mma.instructions, "instruction")
        return Entry(mma.opcode, (*facts, ("count", counted), ("not read", mma.remark)))
    m, n, k = mma.shape_mnk
    title = f"m{m}n{n}k{k}, {mma.accumulator} += {mma.a.dtype} x {mma.b.dtype}"
    counted = several(mma.instructions, "instruction")
    if mma.issued is not None:
        groups = ", ".join(map(str, mma.warpgroups))
        who = f" by warpgroup{'s' if len(mma.warpgroups) > 1 else ''} {groups}" if groups else ""
        counted += f", issued {several(mma.issued, 'time')}{who}" if mma.issued else ", not reached"
    facts.append(("count", counted))
    small, large = [], []
    for name, operand in (("A", mma.a), ("B", mma.b)):
        facts += _operand(name, operand)
        key = name, operand.shape_mn_k, operand.dtype, operand.major, operand.lbo, operand.sbo, operand.swizzle
        pictures = None if key in drawn else operand_pictures(operand, name)
        drawn.add(key)
        if pictures is not None:
            small.append(pictures[0])
            large.append(pictures[1])
    return Entry(title, tuple(facts), pictured(*small), pictured(*large))


def _operand(name: str, operand: Operand) -> Iterator[tuple[str, str]]:
    tile = f"{extents(operand.shape_mn_k)} {operand.dtype}, {operand.major}-major, in {operand.source}"
    yield name, tile
    if operand.source == "registers":
        return

    def known(value: object) -> str:
        return UNKNOWN if value is None else str(value)

    yield (
        f"{name} descriptor",
        f"LBO {known(operand.lbo)}, SBO {known(operand.sbo)}, swizzle {known(operand.swizzle)}, "
        f"base offset {known(operand.base_offset)}",
    )
    starts = addresses(operand.start_addresses)
    if operand.descriptors and not operand.complete:
        starts += " when first reached; later ones are known at launch"
    yield f"{name} starts at", starts
    layout = tile_layout(operand)
    if layout is not None:
        yield f"{name} layout", str(layout)


def _copies(kernel: Kernel) -> Iterator[Entry]:
    drawn: set[object] = set()
    for copy in kernel.copies:
        yield _copy(copy, drawn)


def _copy(copy: Copy, drawn: set[object]) -> Entry:
    what = f"tensor of rank {copy.rank}" if copy.rank else "plain bytes"
    title = f"{'TMA ' if copy.rank else 'bulk '}{copy.operation}, {what}{', multicast' if copy.multicast else ''}"
    counted = several(copy.instructions, "instruction")
    if copy.issued is not None:
        counted += f", issued {several(copy.issued, 'time')}" if copy.issued else ", not reached"
    facts = [("at", place(copy.site)), ("count", counted)]
    if copy.rank:
        facts += _tensor(copy)
    elif copy.operation != "prefetch":
        facts.append(("bytes", UNKNOWN if copy.bytes is None else str(copy.bytes)))
    if copy.operation != "prefetch":
        facts.append(("shared memory", addresses(copy.shared_addresses)))
    if "mbarrier" in copy.opcode:
        facts.append(("counted at", ", ".join(f"mbarrier {name}" for name in copy.barriers) or UNKNOWN))
    tensor_map = copy.tensor_map
    key = tensor_map and (tensor_map.box[0], tensor_map.bits, tensor_map.swizzle)
    box, tensor = box_picture(copy), tensor_picture(copy)
    small = None if box is None or key in drawn else first_rows(box)
    drawn.add(key)
    return Entry(title, tuple(facts), pictured(small), pictured(box, tensor))


def _tensor(copy: Copy) -> Iterator[tuple[str, str]]:
    found = copy.tensor_map
    if found is None:
        yield "tensor map", UNKNOWN
        return
    held = f" ({copy.parameter})" if copy.parameter else ""
    yield "tensor", f"{extents(found.dims)} {found.dtype}, the contiguous mode first{held}"
    yield "strides", f"{', '.join(map(str, found.strides_bytes)) or 'none'} bytes of modes beyond the first"
    yield "box", f"{extents(found.box)}: {found.box_bytes} bytes; element strides {extents(found.element_strides)}"
    yield "swizzle", f"{found.swizzle}; interleave {found.interleave}; outside reads as {found.oob_fill}"
    yield "L2 promotion", found.l2_promotion
    for other in copy.tensor_maps[1:]:
        strides = ", ".join(map(str, other.strides_bytes)) or "none"
        yield (
            "also",
            f"{extents(other.dims)} {other.dtype}, strides {strides}, box {extents(other.box)}, {other.swizzle}",
        )
    if copy.coordinates:
        lows, highs = (tuple(map(f, zip(*copy.coordinates, strict=True))) for f in (min, max))
        over = sum(not _inside(at, found) for at in copy.coordinates) if len(copy.tensor_maps) == 1 else 0
        beyond = f", {over} of which reach beyond the tensor" if over else ""
        yield (
            "coordinates",
            f"{several(len(copy.coordinates), 'box', 'boxes')}, {_tuple(lows)} to {_tuple(highs)}{beyond}",
        )


def _inside(at: tuple[int, ...], tensor_map: TensorMap | Im2colTensorMap) -> bool:
    """Return whether a box lies within its tensor."""
    if isinstance(tensor_map, Im2colTensorMap):
        return all(
            0 <= c < extent
            for pixel in tensor_map.pixels(at)
            for c, extent in zip(pixel, tensor_map.dims[1:], strict=True)
        )
    spans = zip(at, tensor_map.box_elems, tensor_map.element_strides, tensor_map.dims, strict=True)
    return all(first >= 0 and first + (count - 1) * step < extent for first, count, step, extent in spans)


def _tuple(values: tuple[int, ...]) -> str:
    return f"({','.join(map(str, values))})"


def _barrier(barrier: Barrier) -> Entry:
    kind = {"mbarrier": "mbarrier", "bar": "named barrier", "cluster": "cluster barrier"}[barrier.kind]
    name = barrier.name.removeprefix("bar ")
    title = f"{kind} {name}".strip()
    facts: list[tuple[str, str]] = []
    if len(barrier.addresses) > 1 and not barrier.is_nameless:
        title += f", {len(barrier.addresses)} stages"
    elif len(barrier.addresses) > 1:
        title = f"{len(barrier.addresses)} mbarriers"
    if barrier.kind == "mbarrier":
        facts.append(("addresses", addresses(barrier.addresses)))
    if barrier.kind != "cluster":
        unit = "arrival" if barrier.kind == "mbarrier" else "thread"
        everyone = "all threads of the CTA" if barrier.kind == "bar" else UNKNOWN
        facts.append(("expects", everyone if barrier.arrivals is None else several(barrier.arrivals, unit)))
    facts += [(_ACTIONS.get(party.action, party.action), _party(party)) for party in barrier.parties]
    return Entry(title, tuple(facts))


_ACTIONS = {
    "init": "initialised",
    "expect_tx": "expects bytes",
    "arrive": "arrive",
    "complete_tx": "bytes arrive",
    "sync": "synchronise",
    "wait": "wait",
}


def _party(party: Party) -> str:
    said = f"at {place(party.site)}" if place(party.site) else ""
    if party.amounts and party.action in ("expect_tx", "complete_tx"):
        said = f"{', '.join(map(str, party.amounts))} bytes " + said
    elif party.amounts and party.action == "arrive" and max(party.amounts) > 1:
        said = f"{', '.join(map(str, party.amounts))} arrivals " + said
    if party.threads:
        said += f", by {party.threads}"
    if party.times is not None:
        said += f", {several(party.times, 'time')}"
    if party.waited and party.action in ("wait", "sync"):
        said += f", {party.waited} of them after waiting"
    return said


def _smem_remark(kernel: Kernel) -> str:
    if kernel.simulated:
        return "" if kernel.regions else "not used"
    return "what lies in dynamic shared memory is known at launch" if kernel.launch.dynamic_smem_bytes is None else ""


def _tmem(kernel: Kernel) -> Iterator[Entry]:
    """Make an entry for each allocation, and one for each of its parts."""
    for allocation in kernel.allocations:
        title = f"{UNKNOWN if allocation.columns is None else several(allocation.columns, 'column')} of 128 lanes"
        facts = [
            ("allocated", f"at {place(allocation.site)}" + (f", by {allocation.threads}" * bool(allocation.threads)))
        ]
        if allocation.ctas == 2:
            facts.append(("of", "both CTAs of a pair"))
        facts += [("freed", f"at {place(site)}") for site in allocation.freed]
        yield Entry(title, tuple(facts))
        for part in allocation.parts:
            lanes = ",".join(f"{first}-{last}" for first, last in part.lanes)
            title = f"columns {part.first}-{part.first + part.columns - 1}  lanes {lanes}  {part.what}"
            users = [("written", who) for who in part.writers] + [("read", who) for who in part.readers]
            yield Entry(title, tuple(users))


def _region(region: Region) -> Entry:
    end = region.start + region.bytes
    title = f"{region.start:#07x}-{end - 1:#07x}  {region.bytes} bytes  {region.what}"
    if region.starts:
        title = f"{addresses(region.starts)}  {region.bytes} bytes each  {region.what}"
    facts = [("written", text) for text in region.writers] + [("read", text) for text in region.readers]
    if region.parts:
        facts.insert(0, ("in parts", f"{len(region.parts)} that start at {addresses(region.parts)}"))
    return Entry(title, tuple(facts))
