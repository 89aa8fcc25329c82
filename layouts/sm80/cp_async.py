"""cp.async: an asynchronous copy by a thread from global to shared memory.

References
----------
PTX ISA, "cp.async". CuTe ``arch/copy_sm80.hpp`` and ``atom/copy_traits_sm80.hpp``.
"""

from __future__ import annotations

from typing import Literal

from ..arguments import one_of
from ..errors import LayoutError
from ..sm90.copy_atom import one_thread_copy
from ..sm90.traits import CopyTraits

_BITS = {"ALWAYS": (32, 64, 128), "GLOBAL": (128,)}


def cp_async(copy_bits: int = 128, *, cache: Literal["always", "global"] | None = None) -> CopyTraits:
    """Return the traits of ``cp.async``: each thread copies a vector from global to shared memory.

    Parameters
    ----------
    copy_bits : int
        32, 64 or 128.
    cache : {"always", "global"}, optional
        ``.ca`` caches in L1 and L2, ``.cg`` in L2 alone and takes 128 bits only. Default: ``"global"`` for 128 bits.

    Raises
    ------
    LayoutError
        If there is no such instruction.

    Examples
    --------
    >>> cp_async(128).name, cp_async(32).name
    ('SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>', 'SM80_CP_ASYNC_CACHEALWAYS<uint32_t>')
    """
    level = "GLOBAL" if cache is None and copy_bits == 128 else "ALWAYS"
    if cache is not None:
        level = one_of("cp_async", (copy_bits,), "cache", cache, ("always", "global")).upper()
    if level == "GLOBAL" and copy_bits != 128:
        raise LayoutError(
            "cp_async", (copy_bits,), f".cg copies 128 bits, got {copy_bits}", 'cache="always" copies 32 and 64 too'
        )
    return one_thread_copy("cp_async", f"SM80_CP_ASYNC_CACHE{level}", copy_bits, _BITS[level])
