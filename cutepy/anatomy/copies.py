"""The asynchronous copies of a kernel: tensor copies, and bulk copies of plain bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cutepy.anatomy.mmas import site_of
from cutepy.anatomy.model import Copy
from cutepy.anatomy.values import Values
from cutepy.anatomy.watch import LaunchRecord, SeenCopy
from cutepy.layouts import LayoutError
from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.sim import Launch
from cutepy.sim.ptx import Address, Function, Instruction, Operand
from cutepy.sim.ptx.instruction_set import REDUCTIONS

_MAP_BYTES = 128


def copies_of(
    function: Function, values: Values, seen: LaunchRecord | None, barriers: Mapping[int, str]
) -> tuple[Copy, ...]:
    """List the asynchronous bulk copies of a function.

    Parameters
    ----------
    function : Function
    values : Values
    seen : LaunchRecord or None
        Records of observed launches.
    barriers : mapping of int to str
        Names of mbarriers by address.
    """
    of_lines: dict[object, list[tuple[Instruction, Copy]]] = {}
    for i in function.instructions:
        if _is_bulk_copy(i):
            one = _copy(i, values, seen, barriers)
            of_lines.setdefault((one.site.lines or i.index, i.opcode), []).append((i, one))
    joined = [_joined(group) for copies in of_lines.values() for group in _of_one_tensor(copies)]
    return tuple(replace(copy, tensor_maps=_shapes(copy.tensor_maps)) for copy in joined)


def _is_bulk_copy(i: Instruction) -> bool:
    form = i.traits.form
    return i.traits.is_bulk and form is not None and "address" in form.words


def _shapes(tensor_maps: Sequence[TensorMap | Im2colTensorMap]) -> tuple[TensorMap | Im2colTensorMap, ...]:
    """Return the tensor maps that differ in more than the address."""
    found: dict[TensorMap | Im2colTensorMap, TensorMap | Im2colTensorMap] = {}
    for tensor_map in tensor_maps:
        found.setdefault(replace(tensor_map, global_address=0), tensor_map)
    return tuple(found.values())


def _of_one_tensor(copies: list[tuple[Instruction, Copy]]) -> list[list[tuple[Instruction, Copy]]]:
    """Split copies by tensor; copies that launches did not reach are counted with the first."""
    groups: dict[object, list[tuple[Instruction, Copy]]] = {}
    for i, one in sorted(copies, key=lambda pair: (not pair[1].issued, pair[0].index)):
        key: object = frozenset(one.tensor_maps), one.parameter, one.bytes
        if one.issued == 0 and not one.tensor_maps and groups:
            key = next(iter(groups))
        groups.setdefault(key, []).append((i, one))
    return list(groups.values())


def _copy(i: Instruction, values: Values, seen: LaunchRecord | None, barriers: Mapping[int, str]) -> Copy:
    tensor = "tensor" in i.parts
    rank = (
        next((int(p[0]) for p in i.parts if len(p) == 2 and p[0].isdigit() and p[1] == "d"), None) if tensor else None
    )
    found = None if seen is None else seen.copies.get(i.index, SeenCopy())
    parameter = ""
    tensor_maps: tuple[TensorMap | Im2colTensorMap, ...] = ()
    size = None if tensor else _size(i, values)
    places: tuple[int, ...] = ()
    if found is not None and found.tensor_maps:
        tensor_maps = tuple(found.tensor_maps)
        assert seen is not None
        parameter = _parameter(tensor_maps[0], seen.launches)
        sizes = {tensor_map.box_bytes for tensor_map in tensor_maps}
        size = sizes.pop() if len(sizes) == 1 else None
        places = tuple(sorted(found.places))
    elif (address := _shared_operand(i)) is not None:
        first, stays = values.address(address)
        places = (first,) if first is not None and stays else ()
    issued = None if found is None else found.issued
    if seen is not None and not tensor:
        issued = _issued(seen, i.index)
    return Copy(
        i.opcode,
        _operation(i),
        rank,
        any(part.startswith("multicast") for part in i.parts),
        tensor_maps,
        parameter,
        1,
        issued,
        size,
        places,
        tuple(sorted(found.coordinates)) if found else (),
        _barriers(i, values, seen, barriers),
        site_of([i]),
    )


def _operation(i: Instruction) -> str:
    """Name the operation of a copy, by its opcode."""
    if "prefetch" in i.parts:
        return "prefetch"
    if "reduces" in i.traits.effects:
        return next((part for part in i.parts if part in REDUCTIONS), "reduce")
    spaces = [part for part in i.parts if part.startswith(("shared", "global"))]
    if spaces[:1] and spaces[0].startswith("shared"):
        return "to a peer" if len(spaces) > 1 and spaces[1].startswith("shared") else "load"
    return "store"


def _shared_operand(i: Instruction) -> Operand | None:
    """Return the operand that addresses this CTA's shared memory: a load's destination, another copy's source."""
    addresses = [operand for operand in i.operands if isinstance(operand, Address) and operand.coordinates is None]
    if "prefetch" in i.parts or not addresses:  # a statement that could not be read may have none
        return None
    return addresses[0] if _operation(i) == "load" else addresses[:2][-1]


def _size(i: Instruction, values: Values) -> int | None:
    plain = [operand for operand in i.operands if not isinstance(operand, Address)]
    return values.always(plain[0]) if plain and "prefetch" not in i.parts else None


def _issued(seen: LaunchRecord, index: int) -> int | None:
    times = [p.times for parties in seen.barriers.values() for (_, at), p in parties.items() if at == index]
    return sum(times) if times else None


def _barriers(
    i: Instruction, values: Values, seen: LaunchRecord | None, barriers: Mapping[int, str]
) -> tuple[str, ...]:
    """Name the mbarriers that count a copy's bytes."""
    if seen is not None:
        keys = [key for key, parties in seen.barriers.items() if ("complete_tx", i.index) in parties]
        return tuple(dict.fromkeys(barriers[key] for key in keys if isinstance(key, int) and key in barriers))
    addresses = [operand for operand in i.operands if isinstance(operand, Address) and operand.coordinates is None]
    if not i.traits.brings_bytes or not addresses:
        return ()
    first, stays = values.address(addresses[-1])
    return (barriers[first],) if first is not None and stays and first in barriers else ()


def _parameter(tensor_map: TensorMap | Im2colTensorMap, launches: Sequence[Launch]) -> str:
    """Name the kernel parameter that holds a tensor map."""
    for launch in launches:
        for number, data in enumerate(launch.parameters.values()):
            if len(data) < _MAP_BYTES // 2:
                continue
            for at in range(0, len(data) - _MAP_BYTES // 2 + 1, 64):
                words = [int.from_bytes(data[at + 8 * n : at + 8 * n + 8], "little") for n in range(8)]
                try:
                    found = type(tensor_map).decode(words)
                except LayoutError:
                    continue
                if found == tensor_map:
                    return f"parameter {number}"
    return ""


def _joined(group: list[tuple[Instruction, Copy]]) -> Copy:
    first = group[0][1]
    counts = [one.issued for _, one in group if one.issued is not None]
    return replace(
        first,
        instructions=len(group),
        issued=sum(counts) if counts else None,
        shared_addresses=tuple(sorted({at for _, one in group for at in one.shared_addresses})),
        coordinates=tuple(sorted({at for _, one in group for at in one.coordinates})),
        barriers=tuple(dict.fromkeys(name for _, one in group for name in one.barriers)),
        site=site_of(i for i, _ in group),
    )
