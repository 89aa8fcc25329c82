"""Strategies for Hopper's layouts: GMMA atoms, shared-memory tiles of them, and names of wgmma atoms."""

from __future__ import annotations

from hypothesis import strategies as st

from cutepy.layouts import ComposedLayout, Layout, sm90, tile_to_shape

MAJORS: tuple[sm90.Major, ...] = ("MN", "K")
_ORDERS = st.sampled_from(((0, 1, 2), (1, 0, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0)))
SWIZZLES: tuple[sm90.SwizzleMode, ...] = ("INTER", "SW32", "SW64", "SW128")


def gmma_atoms(*, pointer_swizzle: bool = False) -> st.SearchStrategy[Layout | ComposedLayout]:
    """Draw a GMMA layout atom of any major, swizzle and element width.

    Parameters
    ----------
    pointer_swizzle : bool
        Let the swizzle act on byte addresses, as C++ CuTe prints it.

    Returns
    -------
    SearchStrategy of Layout or ComposedLayout
    """
    return st.builds(
        sm90.gmma_layout_atom,
        st.sampled_from(MAJORS),
        st.sampled_from(SWIZZLES),
        st.sampled_from((8, 16, 32)),
        pointer_swizzle=st.just(pointer_swizzle),
    )


@st.composite
def smem_tiles(
    draw: st.DrawFn,
    *,
    max_copies: int = 3,
    max_stages: int = 4,
    pointer_swizzle: bool = False,
) -> Layout | ComposedLayout:
    """Draw the shared-memory layout of a pipelined operand, (MN, K, stage): a GMMA atom repeated in any order.

    Parameters
    ----------
    max_copies : int
        Limit of the atoms along MN and along K.
    max_stages : int
        Limit of the stages.
    pointer_swizzle : bool
        As in `gmma_atoms`.

    Returns
    -------
    Layout or ComposedLayout
        A bijection onto ``range(size)``.
    """
    atom = draw(gmma_atoms(pointer_swizzle=pointer_swizzle))
    mn, k = (mode.size() * draw(st.integers(1, max_copies)) for mode in atom)
    order = draw(_ORDERS)
    tile: Layout | ComposedLayout = tile_to_shape(atom, (mn, k, draw(st.integers(1, max_stages))), order)
    return tile


def wgmma_atom_names() -> st.SearchStrategy[str]:
    """Draw the name of a dense SM90 wgmma atom, such as ``SM90_64x64x16_F32F16F16_SS``.

    Returns
    -------
    SearchStrategy of str
    """
    return st.sampled_from(sm90.wgmma_names())


__all__ = ["gmma_atoms", "smem_tiles", "wgmma_atom_names"]
