"""Build staged shared-memory layouts by tiling GMMA layout atoms (traced)."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device.rules import SWIZZLE_ALIGNMENT_BYTES, staged_swizzle
from cutepy.dsl.traced_names import SmemAllocator


def staged_layout(
    element_type: type[cutlass.Numeric],
    tile: tuple[int, int],
    contiguous_mode: int,
    stages: int,
    swizzle: str | None = None,
) -> cute.ComposedLayout:
    """Tile a GMMA atom over (rows, columns, stages): coordinate -> offset in elements, swizzled.

    Parameters
    ----------
    element_type : cutlass.Numeric type
        Element type; its width picks the atom.
    tile : (int, int)
        Rows and columns of one stage: (M, K) of A, (N, K) of B, (M, N) of an epilogue tile.
    contiguous_mode : 0 or 1
        The mode along which global memory is contiguous. 1 is K-major for operands and row-major for outputs.
    stages : int
        Copies of the tile, the slowest mode.
    swizzle : str, optional
        "SW128", "SW64", "SW32" or "INTER"; the widest that divides the tile if not given.

    Returns
    -------
    ComposedLayout
        `Sw<..> o 0 o ((8,rows/8),(span,columns/span),(1,stages))` for mode 1, and its transpose for mode 0.

    Raises
    ------
    ValueError
        If atoms don't fill the tile, or there is no stage.
    """
    swizzle = staged_swizzle(tile, contiguous_mode, stages, element_type.width, swizzle)
    kind = warpgroup.SmemLayoutAtomKind[f"{'K' if contiguous_mode == 1 else 'MN'}_{swizzle}"]
    atom = warpgroup.make_smem_layout_atom(kind, element_type)
    # Atoms are laid one after another along the mode that is not contiguous first: then the 8-row core-matrix
    # groups of one swizzle span are adjacent, and one descriptor stride (SBO) steps over all of them.
    order = (0, 1, 2) if contiguous_mode == 1 else (1, 0, 2)
    return cute.tile_to_shape(atom, (*tile, stages), order=order)


def allocate(allocator: SmemAllocator, element_type: type[cutlass.Numeric], layout: cute.ComposedLayout) -> cute.Tensor:
    """Reserve shared memory for a staged layout and view it as a tensor whose pointer carries the swizzle.

    The swizzle moves from the layout to the pointer: the layout that remains is affine, as the descriptors of
    WGMMA need it, and every access XORs the same address bits as TMA did when it wrote.
    """
    return allocator.allocate_tensor(element_type, layout.outer, SWIZZLE_ALIGNMENT_BYTES, layout.inner)
