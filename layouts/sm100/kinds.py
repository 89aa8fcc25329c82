"""Kinds of tcgen05.mma: their element types, their codes, and the shapes that each takes.

References
----------
PTX ISA, "Matrix Shape" of tcgen05: the table of kinds and shapes; "Instruction Descriptor"; "Block Scaling".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..arguments import one_of
from ..errors import LayoutError
from .arch import CTA_GROUPS

_NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_STEPS_OF_8, _STEPS_OF_16 = tuple(range(8, 257, 8)), tuple(range(16, 257, 16))


@dataclass(frozen=True)
class MmaKind:
    """Kind of tcgen05.mma: (types, CTAs, sparsity) -> the shapes that the instruction takes.

    Parameters
    ----------
    name : str
        The qualifier: ``f16`` of ``.kind::f16``.
    codes : dict of str to int
        Type of A and B, by PTX's name -> its code in an instruction descriptor.
    d_codes : dict of str to int
        The same of D; block-scaled MMAs accumulate in f32 and have no code.
    k : int
        Elements along K of a dense MMA; a sparse one has twice as many.
    scale_codes : dict of str to int
        Type of the scale factors -> code; empty where the kind takes none.
    scale_vectors : dict of str to int
        Qualifier of the scale factors -> elements along K that share one.

    Examples
    --------
    >>> mma_kind("f16").k, list(mma_kind("f16").codes)
    (16, ['f16', 'bf16'])
    """

    name: str
    codes: dict[str, int]
    d_codes: dict[str, int]
    k: int
    scale_codes: dict[str, int]
    scale_vectors: dict[str, int]

    @property
    def block_scaled(self) -> bool:
        """Operands are scaled by block: ``.kind::mx...``."""
        return bool(self.scale_codes)

    @property
    def packs_fp4(self) -> bool:
        """Two elements of 4 bits lie in a byte; of the other kinds each element has a byte of its own."""
        return self.name.startswith("mxf4")

    def element_bits(self, dtype: str) -> int:
        """Bits between elements of a type as the MMA reads them: at least 8, but 4 of packed fp4.

        Examples
        --------
        >>> mma_kind("f8f6f4").element_bits("e2m1"), mma_kind("mxf4").element_bits("e2m1")
        (8, 4)
        """
        return 4 if self.packs_fp4 else {"f16": 16, "bf16": 16, "tf32": 32}.get(dtype, 8)

    def takes_mn_major(self, dtype: str) -> bool:
        """Return whether an operand of this type may be MN-major."""
        return dtype not in ("e2m1", "e2m3", "e3m2")

    def k_choices(self, *, m: int, cta_group: int = 1, sparse: bool = False) -> tuple[int, ...]:
        """Return the extents along K: one, and 96 of packed fp4 with 128 rows in each CTA (sm_103).

        Examples
        --------
        >>> mma_kind("mxf4").k_choices(m=256, cta_group=2), mma_kind("tf32").k_choices(m=64, sparse=True)
        ((64, 96), (16,))
        """
        if sparse:
            return (2 * self.k,)
        return (self.k, 96) if self.packs_fp4 and m == 128 * cta_group else (self.k,)

    def m_choices(self, *, cta_group: int = 1, sparse: bool = False, ws: bool = False) -> tuple[int, ...]:
        """Return the extents along M, of both CTAs together; none where there is no such MMA.

        Examples
        --------
        >>> mma_kind("f16").m_choices(), mma_kind("f16").m_choices(ws=True), mma_kind("mxf4").m_choices(cta_group=2)
        ((64, 128), (32, 64, 128), (128, 256))
        """
        if ws:
            return () if self.block_scaled or cta_group == 2 else (32, 64, 128)
        if cta_group == 1:
            return (128,) if self.block_scaled else (64, 128)
        return (256,) if self.block_scaled and sparse else (128, 256)

    def n_choices(
        self, *, cta_group: int = 1, sparse: bool = False, ws: bool = False, b_major: str = "K"
    ) -> tuple[int, ...]:
        """Return the extents along N.

        Of ``.kind::f8f6f4`` the ISA has steps of 8 or of 16; CuTe tells when: 16 where B is MN-major.

        Examples
        --------
        >>> mma_kind("i8").n_choices()[:5], mma_kind("f16").n_choices(ws=True)
        ((8, 16, 24, 32, 48), (64, 128, 256))
        >>> mma_kind("f8f6f4").n_choices(b_major="MN")[:3]
        (16, 32, 48)
        """
        if ws:
            return (64, 128) if sparse else (64, 128, 256)
        if self.name == "i8":
            return tuple(range(32, 257, 32)) if cta_group == 2 else (8, 16, 24, *range(32, 257, 16))
        coarse = cta_group == 2 or (self.name == "f8f6f4" and b_major == "MN")
        return _STEPS_OF_16 if coarse else _STEPS_OF_8


def _dense(name: str, codes: dict[str, int], d_codes: dict[str, int], k: int) -> MmaKind:
    return MmaKind(name, codes, d_codes, k, {}, {})


KINDS: Final[dict[str, MmaKind]] = {
    kind.name: kind
    for kind in (
        _dense("f16", {"f16": 0, "bf16": 1}, {"f16": 0, "f32": 1}, 16),
        _dense("tf32", {"tf32": 2}, {"f32": 1}, 8),
        _dense("f8f6f4", _NARROW, {"f16": 0, "f32": 1}, 32),
        _dense("i8", {"u8": 0, "s8": 1}, {"s32": 2}, 32),
        MmaKind("mxf8f6f4", _NARROW, {}, 32, {"ue8m0": 1}, {"scale_vec::1X": 32, "block32": 32}),
        MmaKind("mxf4", {"e2m1": 1}, {}, 64, {"ue8m0": 1}, {"scale_vec::2X": 32, "block32": 32}),
        MmaKind(
            "mxf4nvf4",
            {"e2m1": 1},
            {},
            64,
            {"ue4m3": 0, "ue8m0": 1},
            {"scale_vec::2X": 32, "block32": 32, "scale_vec::4X": 16, "block16": 16},
        ),
    )
}
"""Every kind by its qualifier."""


def mma_kind(name: str) -> MmaKind:
    """Return the kind with this name, with or without ``kind::``.

    Raises
    ------
    LayoutError
        If there is no such kind.

    Examples
    --------
    >>> mma_kind(".kind::mxf4nvf4").scale_codes
    {'ue4m3': 0, 'ue8m0': 1}
    """
    plain = name.removeprefix(".").removeprefix("kind::") if isinstance(name, str) else name
    return KINDS[one_of("mma_kind", (name,), "kind", plain, KINDS)]


def check_choice(operation: str, operands: tuple[object, ...], name: str, value: int, choices: Iterable[int]) -> None:
    """Raise LayoutError unless a value is one of the choices, saying which is nearest."""
    choices = tuple(choices)
    if value in choices:
        return
    near = min(choices, key=lambda choice: (abs(choice - value), choice))
    raise LayoutError(operation, operands, f"{name} must be {ranged(choices)}, got {value}", f"nearest is {near}")


def check_cta_group(operation: str, operands: tuple[object, ...], cta_group: int) -> None:
    """Raise LayoutError unless one or two CTAs take part."""
    if cta_group not in CTA_GROUPS:
        raise LayoutError(operation, operands, f"cta_group must be 1 or 2, got {cta_group!r}")


def ranged(choices: tuple[int, ...]) -> str:
    """Format choices: long runs of equal steps as ranges.

    Examples
    --------
    >>> ranged((64, 128)), ranged(tuple(range(8, 257, 8))), ranged((8, 16, 24, 32, 48, 64, 80))
    ('64 or 128', 'a multiple of 8 from 8 to 256', '8, 16, 24, 32, 48, 64 or 80')
    """
    step = choices[0]
    if len(choices) > 4 and choices == tuple(range(step, choices[-1] + 1, step)):
        return f"a multiple of {step} from {step} to {choices[-1]}"
    texts = [str(choice) for choice in choices]
    return " or ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
