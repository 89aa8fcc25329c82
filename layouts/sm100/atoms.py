"""Atoms of Blackwell by the names that C++ CuTe gives them: MMAs, loads and stores of tensor memory, copies to it.

References
----------
CuTe ``arch/mma_sm100_umma.hpp``, ``arch/copy_sm100.hpp``.
"""

from __future__ import annotations

import re

from ..arguments import text
from ..errors import LayoutError
from .tmem_copy import SHAPES, TmemCopyTraits, tmem_load_traits, tmem_store_traits
from .tmem_cp import SHAPES as CP_SHAPES, TmemCpTraits, tmem_cp_traits
from .umma import UmmaTraits, umma_traits_named

_COPY = re.compile(
    r"SM100_TMEM_(?P<way>LOAD|STORE)_(?P<shape>\d+dp\d+b)(?P<repeats>\d+)x(?P<packed>_16b)?", re.IGNORECASE
)
_CP = re.compile(r"SM100_UTCCP_(?P<shape>\w+?)_(?P<ctas>[12])cta", re.IGNORECASE)
_SHAPE_OF = {parts.cute: shape for shape, parts in SHAPES.items()}
_CP_SHAPE_OF = {parts.cute.lower(): shape for shape, parts in CP_SHAPES.items()}


def traits_named(name: str) -> UmmaTraits | TmemCopyTraits | TmemCpTraits:
    """Return the traits of an atom of Blackwell by CuTe's name.

    Parameters
    ----------
    name : str
        ``SM100_MMA_F16BF16_SS<half_t,half_t,float,128,256,K,K>``, ``SM100_TMEM_LOAD_32dp32b8x``,
        ``SM100_TMEM_STORE_16dp256b1x_16b``, ``SM100_UTCCP_4x32dp128bit_1cta``, ...; copies in any case.

    Raises
    ------
    LayoutError
        If there is no such atom.

    Examples
    --------
    >>> traits_named("SM100_TMEM_LOAD_16dp256b2x").registers
    8
    >>> traits_named("SM100_UTCCP_4x32dp128bit_1cta").ptx
    'tcgen05.cp.cta_group::1.32x128b.warpx4'
    """
    plain = text("traits_named", "name", name).strip()
    if parts := _COPY.fullmatch(plain):
        shape = _SHAPE_OF.get(parts["shape"].lower())
        if shape is None:
            raise LayoutError("traits_named", (name,), f"shapes are {', '.join(_SHAPE_OF)}; got {parts['shape']}")
        make = tmem_load_traits if parts["way"].upper() == "LOAD" else tmem_store_traits
        return make(shape, int(parts["repeats"]), packed=parts["packed"] is not None)
    if parts := _CP.fullmatch(plain):
        shape = _CP_SHAPE_OF.get(parts["shape"].lower())
        if shape is None:
            raise LayoutError("traits_named", (name,), f"shapes are {', '.join(_CP_SHAPE_OF)}; got {parts['shape']}")
        return tmem_cp_traits(shape, cta_group=int(parts["ctas"]))
    return umma_traits_named(plain)
