"""Shared memory of a plan, and staged tiles by themselves (traced).

The plan (`cutepy.layouts.sm90.SmemPlan`) is the only source of regions, their offsets and their layouts.
"""

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.dsl import to_cute
from cutepy.dsl.remarks import remark
from cutepy.dsl.traced_names import SmemAllocator
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch
from cutepy.layouts.sm90.smem_remarks import remarks


def staged_layout(
    element_type: type[cutlass.Numeric],
    tile: tuple[int, int],
    contiguous_mode: int,
    stages: int,
    swizzle: arch.SwizzleMode | None = None,
) -> cute.ComposedLayout:
    """Tile a GMMA atom over (rows, columns, stages): coordinate -> offset in elements, swizzled.

    Parameters
    ----------
    element_type : cutlass.Numeric type
        Element type; its width picks the atom.
    tile, contiguous_mode, stages, swizzle
        As of `sm90.StagedTile`, whose layout this is.

    Returns
    -------
    ComposedLayout
        `Sw<..> o 0 o ((8,rows/8),(span,columns/span),(1,stages))` for mode 1, and its transpose for mode 0.

    Raises
    ------
    ValueError
        If atoms don't fill the tile, or there is no stage.
    """
    return to_cute(sm90.StagedTile(tile, stages, element_type.width, contiguous_mode, swizzle).layout)


def allocate(allocator: SmemAllocator, element_type: type[cutlass.Numeric], layout: cute.ComposedLayout) -> cute.Tensor:
    """Reserve shared memory for a staged layout and view it as a tensor whose pointer carries the swizzle.

    The swizzle moves from the layout to the pointer: the layout that remains is affine, as the descriptors of
    WGMMA need it, and every access XORs the same address bits as TMA did when it wrote.
    """
    return allocator.allocate_tensor(element_type, layout.outer, arch.pattern_bytes("SW128"), layout.inner)


def share(plan: sm90.SmemPlan, **types: type[cutlass.Numeric]) -> dict:
    """Allocate all shared memory of a plan, which is then the CTA's only allocation; called once, by all threads.

    Parameters
    ----------
    plan : SmemPlan
    **types : cutlass.Numeric type
        Element types of the staged tiles, and of arrays that hold something else than integers, by name.

    Returns
    -------
    dict of str to Tensor or Pointer
        By name: a tensor (rows, columns, stages) for a staged tile, as of `allocate`; a pointer for an array.

    Raises
    ------
    ValueError
        If the plan is more than a CTA can have, a type is missing, or not as wide as was planned.
    """
    rules.check_smem(plan)
    remark(remarks(plan))
    allocator, shared, starts = SmemAllocator(), {}, {}
    holders = dict(plan.overlays)
    for region in plan:
        element_type = types.get(region.name, _INTEGERS.get(region.bits))
        rules.check_region(region, getattr(types.get(region.name), "width", None))
        content, holder = region.content, starts.get(holders.get(region.name))
        pointer = None if holder is None else _overlay(holder, element_type, content.alignment_bytes)
        if isinstance(content, sm90.StagedTile):
            layout = to_cute(region.layout)
            if pointer is None:
                tensor = allocate(allocator, element_type, layout)
            else:
                tensor = cute.make_tensor(cute.recast_ptr(pointer, layout.inner), layout.outer)
            shared[region.name], starts[region.name] = tensor, tensor.iterator
        else:
            if pointer is None:
                pointer = allocator.allocate_array(element_type, content.count, byte_alignment=content.alignment_bytes)
            shared[region.name], starts[region.name], pointer.region = pointer, pointer, region
    return shared


def _overlay(start: cute.Pointer, element_type: type[cutlass.Numeric], alignment: int) -> cute.Pointer:
    """Return where an overlay begins: at the start of the region that holds it, without that one's swizzle."""
    return cute.make_ptr(element_type, start.toint(), cute.AddressSpace.smem, assumed_align=alignment)


def check_room(pointer: cute.Pointer, count: int, bits: int, holder: str) -> None:
    """Check that an array of a plan has room for a block's elements.

    Parameters
    ----------
    pointer : Pointer
        Pointer to the beginning of the array, as of `share`; other pointers are not checked.
    count, bits : int
        Elements, and how wide each is.
    holder : str
        Name of the block that keeps them there.

    Raises
    ------
    ValueError
        If the region is of fewer elements, or of others.
    """
    region = getattr(pointer, "region", None)
    if region is not None:
        rules.check_room(region, count, bits, holder)


def as_vector(pointer: cute.Pointer, region: sm90.SmemRegion) -> cute.Tensor:
    """View an array of a plan, `pointer` as of `share`, as a tensor of its elements, (count,)."""
    return cute.make_tensor(pointer, cute.make_layout(region.content.count))


_INTEGERS = {8: cutlass.Int8, 16: cutlass.Int16, 32: cutlass.Int32, 64: cutlass.Int64}
