"""The rule that counts wavefronts of shared memory: one definition for static reports and for the simulator.

Shared memory serves the lanes of a warp's instruction group by group, one *pass* each, and a pass takes a wavefront for
each address that its busiest bank has to serve.

=====================  ==========================  ===================================================
instruction            lanes of a pass             what one wavefront of a bank serves
=====================  ==========================  ===================================================
ld, st of <= 4 bytes   the warp                    a word of 4 bytes, to all lanes that want it
ld, st of 8 bytes      a half                      as above, with 8 bytes and two banks
ld, st of 16 bytes     a quarter                   as above, with 16 bytes and four banks
ldmatrix, stmatrix     a matrix: eight rows        one row of 16 bytes, to all lanes that give it
atom                   as ld, never merged         one lane; lanes on one word are served one by one
cas                    as atom                     one lane, with a second wavefront: it reads, then writes
wgmma                  a core matrix: eight rows   one row of 16 bytes
tma                    128 bytes: eight units      one unit of 16 bytes
=====================  ==========================  ===================================================

Loads of 8 and 16 bytes can merge: two passes side by side (the halves; quarters 0 with 1 and 2 with 3) are one if each
lane agrees with a neighbour: over the whole warp, for every active lane the lane at distance 1 (``lane ^ 1``) is off or
reads the same address; or the same holds at distance 2. Stores never merge, nor do matrices, even of equal rows.

All but the rows for wgmma and tma are measured: an H200's counters for 378 patterns of loads and stores, and for 128 of
all these instructions by `tests/layouts/banks_hardware.py` (2026-11), all explained. The rows for wgmma and tma are the
reading for which their layouts are made, and not measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from ..hardware import SMEM_BANK_BYTES, SMEM_BANKS, UNIT_BYTES, WARP_THREADS

Kind = Literal["ld", "st", "atom", "cas", "ldmatrix", "stmatrix", "wgmma", "tma"]
"""Kind of access, by PTX's names; "atom" is each atomic operation except "cas"."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

ROW_KINDS: Final = frozenset(("ldmatrix", "stmatrix", "wgmma", "tma"))
"""Kinds that move rows of 16 bytes, eight to a pass."""

ROW_BYTES: Final = UNIT_BYTES
"""Bytes of a row of these kinds."""

_ROWS = 8
_SERVED_APART: Final[Mapping[Kind, int]] = {"atom": 1, "cas": 2}
"""Wavefronts of a lane for kinds that are never merged: a bank serves each lane by itself, even at equal addresses."""

_LINE_BYTES: Final = SMEM_BANKS * SMEM_BANK_BYTES

Addresses = Sequence[int | None]
"""A byte address for each lane (or row), each a multiple of the bytes of a lane; None for a lane that is off."""


def passes(kind: Kind, size_bytes: int, addresses: Addresses) -> list[list[int]]:
    """Return the lanes of each pass, in order; passes without an active lane are left out.

    Examples
    --------
    >>> [len(lanes) for lanes in passes("ld", 16, range(0, 512, 16))]
    [8, 8, 8, 8]
    >>> [len(lanes) for lanes in passes("ld", 16, [lane // 2 * 16 for lane in range(32)])]
    [16, 16]
    """
    if kind in ROW_KINDS:
        lanes = _ROWS
    else:
        lanes = min(WARP_THREADS, _LINE_BYTES // size_bytes)
        if kind == "ld" and lanes < WARP_THREADS and _neighbours_agree(addresses):
            lanes *= 2
    groups: dict[int, list[int]] = {}
    for lane, address in enumerate(addresses):
        if address is not None:
            groups.setdefault(lane // lanes, []).append(lane)
    return list(groups.values())


def _neighbours_agree(addresses: Addresses) -> bool:
    padded = [*addresses, *[None] * (WARP_THREADS - len(addresses))]
    active = [(lane, address) for lane, address in enumerate(padded) if address is not None]
    return any(all(padded[lane ^ step] in (None, address) for lane, address in active) for step in (1, 2))


def unit_bytes(size_bytes: int) -> int:
    """Return the bytes of a unit, which a bank, or the two or four banks of a vector, serve at once: 4, 8 or 16."""
    return max(SMEM_BANK_BYTES, size_bytes)


def served(kind: Kind, size_bytes: int, addresses: Addresses, lanes: Sequence[int]) -> list[int]:
    """Return the numbers of the units that a pass over `lanes` serves, one wavefront of their banks for each.

    Units are aligned, so the words of a unit all lie in banks of the unit's own: what is true of one is of all.
    """
    unit = unit_bytes(size_bytes)
    units = [address // unit for lane in lanes if (address := addresses[lane]) is not None]
    return units * _SERVED_APART[kind] if kind in _SERVED_APART else list(set(units))


def unit_bank(size_bytes: int, unit: int) -> int:
    """Return the group of banks that serves a unit: banks ``g * n`` to ``g * n + n - 1`` for units of n words."""
    return unit % (_LINE_BYTES // unit_bytes(size_bytes))


def wavefronts(kind: Kind, size_bytes: int, addresses: Addresses) -> int:
    """Return the number of wavefronts of one instruction of one warp.

    Parameters
    ----------
    kind : Kind
    size_bytes : int
        Bytes of each lane: 1, 2, 4, 8 or 16; 16 for rows.
    addresses : sequence of int or None
        One for each lane, or of ldmatrix and stmatrix for each row; None for a lane that is off.

    Examples
    --------
    >>> wavefronts("ld", 4, range(0, 128, 4)), wavefronts("ld", 4, range(0, 4096, 128))
    (1, 32)
    >>> wavefronts("st", 16, [0] * 32), wavefronts("ld", 16, [0] * 32), wavefronts("ldmatrix", 16, [0] * 8)
    (4, 2, 1)
    """
    return count_wavefronts(kind, size_bytes, addresses)[0]


def fewest_wavefronts(kind: Kind, size_bytes: int, addresses: Addresses) -> int:
    """Return the fewest wavefronts that any layout gives these lanes.

    Any layout: any other place for each address, equal ones staying equal. Passes depend only on which addresses are
    equal, and none has more lanes than there are units in a row of all banks; so only equal addresses that are served
    apart take more than a wavefront.

    Examples
    --------
    >>> fewest_wavefronts("ld", 4, range(0, 4096, 128)), fewest_wavefronts("st", 8, range(0, 256, 8))
    (1, 2)
    """
    return count_wavefronts(kind, size_bytes, addresses)[1]


def count_wavefronts(kind: Kind, size_bytes: int, addresses: Addresses) -> tuple[int, int]:
    """Return `wavefronts` and `fewest_wavefronts` of one instruction.

    Examples
    --------
    >>> count_wavefronts("ld", 4, range(0, 4096, 128))
    (32, 1)
    """
    banks = _LINE_BYTES // unit_bytes(size_bytes)
    taken = fewest = 0
    for lanes in passes(kind, size_bytes, addresses):
        units = served(kind, size_bytes, addresses, lanes)
        taken += max(Counter([unit % banks for unit in units]).values())
        fewest += max(Counter(units).values()) if kind in _SERVED_APART else 1
    return taken, fewest
