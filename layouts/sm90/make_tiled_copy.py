"""make_tiled_copy and its variants: tilings of a copy atom by threads and values, after an MMA or another copy.

References
----------
CuTe ``atom/copy_atom.hpp``.
"""

from __future__ import annotations

from ..algebra import coalesce, composition, filter, left_inverse, right_inverse
from ..arguments import wrong_type
from ..errors import LayoutError
from ..int_tuple import product_each, wrap
from ..layout import Layout, make_layout
from ..modes import shape, size
from ..tiling import raked_product
from .copy_atom import CopyAtom
from .tiled_copy import TiledCopy
from .tiled_mma import TiledMMA

_ONE = Layout(1)


def make_tiled_copy(atom: CopyAtom, thr_layout: Layout, val_layout: Layout = _ONE) -> TiledCopy:
    """Tile a copy atom by layouts of threads and values: C++'s ``make_tiled_copy``, the DSL's ``make_tiled_copy_tv``.

    The tile is `thr_layout`'s shape, each of its elements a block of `val_layout`'s shape.

    Parameters
    ----------
    atom : CopyAtom
    thr_layout : Layout
        (m, n) -> thread; compact.
    val_layout : Layout, optional
        (m, n) -> value; compact. Default: one value.

    Raises
    ------
    LayoutError
        If the atom does not divide threads and values, or the layouts are not compact.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import make_copy_atom, universal_copy
    >>> atom = make_copy_atom(universal_copy(128), 16)
    >>> copy = make_tiled_copy(atom, Layout((32, 8), (8, 1)), Layout((1, 8)))
    >>> print(copy.layout_tv, copy.tiler_mn)
    ((8,32),8):((256,1),32) (32, 64)
    """
    for name, layout in (("thr_layout", thr_layout), ("val_layout", val_layout)):
        if not isinstance(layout, Layout):
            raise TypeError(
                f"{wrong_type('make_tiled_copy', name, 'a Layout', layout)}; "
                "the DSL's make_tiled_copy(atom, layout_tv, tiler_mn) is TiledCopy"
            )
    to_index = raked_product(thr_layout, val_layout)
    shape_tv = (thr_layout.size(), val_layout.size())
    inverse = right_inverse(to_index)
    if inverse.size() != shape_tv[0] * shape_tv[1]:
        raise LayoutError(
            "make_tiled_copy",
            (atom.name, thr_layout, val_layout),
            f"the layouts must be compact: {to_index} numbers {inverse.size()} of {shape_tv[0] * shape_tv[1]} "
            "(thread, value) pairs without a gap",
        )
    return TiledCopy(atom, inverse.with_shape(shape_tv), wrap(product_each(shape(to_index))))


make_tiled_copy_tv = make_tiled_copy


def make_tiled_copy_A(atom: CopyAtom, mma: TiledMMA) -> TiledCopy:
    """Tile a copy atom by the A fragment of an MMA's threads.

    Examples
    --------
    >>> from cutepy.layouts import sm80
    >>> from cutepy.layouts.sm90 import TiledMMA, ldmatrix_traits, make_copy_atom
    >>> mma = TiledMMA(sm80.mma_traits("SM80_16x8x16_F32F16F16F32_TN"), Layout((2, 2, 1)), (32, 32, 16))
    >>> copy = make_tiled_copy_A(make_copy_atom(ldmatrix_traits(4), 16), mma)
    >>> print(copy.get_layoutS_TV())
    ((16,2,2,2),(8,1)):((1,256,16,0),(32,0))
    """
    m, _, k = _mma("make_tiled_copy_A", mma).tile_shape
    return TiledCopy(atom, mma.get_layoutA_TV(), (m, k))


def make_tiled_copy_B(atom: CopyAtom, mma: TiledMMA) -> TiledCopy:
    """Tile a copy atom by the B fragment of an MMA's threads."""
    _, n, k = _mma("make_tiled_copy_B", mma).tile_shape
    return TiledCopy(atom, mma.get_layoutB_TV(), (n, k))


def make_tiled_copy_C(atom: CopyAtom, mma: TiledMMA) -> TiledCopy:
    """Tile a copy atom by the C fragment of an MMA's threads.

    With several atoms along K, CuTe's ``layoutC_TV`` maps the threads of all but the first beyond the tile, and so
    does the copy.
    """
    m, n, _ = _mma("make_tiled_copy_C", mma).tile_shape
    return TiledCopy(atom, mma.get_layoutC_TV(), (m, n))


def make_tiled_copy_C_atom(atom: CopyAtom, mma: TiledMMA) -> TiledCopy:
    """Tile a copy atom by as few values of C as one atom takes: for epilogues that store C in parts.

    The tiler is a tuple of layouts, which take from each mode of C's tile the elements that the first values of all
    threads are.

    Raises
    ------
    LayoutError
        If the atom takes more values than a thread has of C.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import TiledMMA, make_copy_atom, stmatrix_traits, wgmma_traits
    >>> mma = TiledMMA(wgmma_traits("SM90_64x64x16_F32F16F16_SS"), Layout((2, 1, 1)))
    >>> copy = make_tiled_copy_C_atom(make_copy_atom(stmatrix_traits(4), 16), mma)
    >>> print(*copy.tiler_mn)
    (8,8,2):(1,16,8) (4,2,2):(2,1,8)
    """
    extents = _mma("make_tiled_copy_C_atom", mma).tile_shape[:2]
    of_c = mma.get_layoutC_TV()
    values = atom.num_val_src
    if values > size(of_c, 1):
        raise LayoutError(
            "make_tiled_copy_C_atom",
            (atom.name, str(mma)),
            f"the atom takes {values} values a time, but a thread has only {size(of_c, 1)} of C",
        )
    first = composition(of_c, Layout((size(of_c, 0), values)))
    along = (Layout(extents, (1, 0)), Layout(extents, (0, 1)))
    tiler = tuple(filter(composition(coordinate, first)) for coordinate in along)
    to_c = composition(Layout(extents), tiler)
    return TiledCopy(atom, composition(left_inverse(to_c), first), tiler)


def make_tiled_copy_S(atom: CopyAtom, copy: TiledCopy) -> TiledCopy:
    """Tile a copy atom by the source fragment of another copy's threads."""
    return TiledCopy(atom, _copy("make_tiled_copy_S", copy).get_layoutS_TV(), copy.tiler_mn)


def make_tiled_copy_D(atom: CopyAtom, copy: TiledCopy) -> TiledCopy:
    """Tile a copy atom by the destination fragment of another copy's threads."""
    return TiledCopy(atom, _copy("make_tiled_copy_D", copy).get_layoutD_TV(), copy.tiler_mn)


def make_cotiled_copy(atom: CopyAtom, atom_layout_tv: Layout, data_layout: Layout) -> TiledCopy:
    """Tile a copy atom by the addresses that its threads' values have, in a tensor with a given layout.

    Parameters
    ----------
    atom : CopyAtom
        The instruction.
    atom_layout_tv : Layout
        (thread, value) -> address, in elements.
    data_layout : Layout
        Coordinate of the tensor -> address, one to one.

    Raises
    ------
    LayoutError
        If the tensor has no element at an address.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import make_copy_atom, universal_copy
    >>> atom = make_copy_atom(universal_copy(32), 16)
    >>> print(make_cotiled_copy(atom, Layout((8, 2), (2, 1)), Layout((8, 4), (4, 1))))
    TiledCopy(CopyAtom(UniversalCopy<uint32_t>, 16), ((2,4),2):((4,1),8), <4:1,(2,2):(2,1)>)

    References
    ----------
    CuTe ``atom/copy_atom.hpp``, ``make_cotiled_copy``.
    """
    # What lies beyond the tensor has stride 0, so that addresses without an element don't come back.
    beyond = Layout(1, 0)
    layout_tv = composition(make_layout(left_inverse(data_layout), beyond), atom_layout_tv)
    if coalesce(composition(make_layout(data_layout, beyond), layout_tv[1])) != coalesce(atom_layout_tv[1]):
        raise LayoutError(
            "make_cotiled_copy",
            (atom.name, atom_layout_tv, data_layout),
            f"the tensor must have an element at each address of a thread's values, {atom_layout_tv[1]}",
            "take an instruction of fewer repetitions, or another shape",
        )
    extents = product_each(data_layout.shape)
    extents = extents if isinstance(extents, tuple) else (extents,)
    along = (Layout(extents, tuple(int(i == mode) for i in range(len(extents)))) for mode in range(len(extents)))
    tiler = tuple(filter(composition(coordinate, layout_tv)) for coordinate in along)
    to_data = composition(Layout(extents), tiler)
    return TiledCopy(atom, composition(left_inverse(to_data), layout_tv), tiler)


def _mma(operation: str, mma: object) -> TiledMMA:
    if not isinstance(mma, TiledMMA):
        raise wrong_type(operation, "mma", "a TiledMMA", mma)
    return mma


def _copy(operation: str, copy: object) -> TiledCopy:
    if not isinstance(copy, TiledCopy):
        raise wrong_type(operation, "copy", "a TiledCopy", copy)
    return copy
