"""Operands of MMAs as the words of their shared-memory descriptors say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cutepy.anatomy.model import Operand
from cutepy.anatomy.values import Values
from cutepy.layouts.hardware import AnySwizzleMode
from cutepy.layouts.sm90.arch import GMMA_LAYOUT_TYPE
from cutepy.layouts.sm100.arch import SMEM_LAYOUT_TYPE
from cutepy.sim import ptx


@dataclass(frozen=True)
class Words:
    """Descriptor words of one architecture.

    Attributes
    ----------
    fields : mapping of str to (int, int, int)
        Fields of a word: lowest bit, mask, and unit in bytes.
    swizzles : mapping of int to str
        Swizzles by layout type.
    """

    fields: Mapping[str, tuple[int, int, int]]
    swizzles: Mapping[int, AnySwizzleMode]

    def operand(self, known: Operand, at: ptx.Operand, values: Values, seen: Mapping[int, None] | None) -> Operand:
        """Return an operand with the descriptor words of the launches, or else with the constant fields."""
        if seen:
            return self.described(known, tuple(seen), complete=True)
        if seen is None and (first := values.first(at)) is not None:
            return self.described(known, (first,), complete=values.always(at) is not None)
        return self._with_fields(known, {name: values.always(at, self._reader(name)) for name in self.fields})

    def described(self, operand: Operand, words: tuple[int, ...], *, complete: bool) -> Operand:
        """Return an operand with descriptors; fields in which these differ are unknown."""
        fields = {}
        for name in self.fields:
            found = {self._reader(name)(word) for word in words}
            fields[name] = found.pop() if len(found) == 1 else None
        return replace(self._with_fields(operand, fields), descriptors=words, complete=complete)

    def _reader(self, name: str) -> Callable[[int], int]:
        shift, mask, unit = self.fields[name]
        return lambda word: (word >> shift & mask) * unit

    def _with_fields(self, operand: Operand, fields: Mapping[str, int | None]) -> Operand:
        layout_type = fields["layout_type"]
        return replace(
            operand,
            lbo=fields["lbo"],
            sbo=fields["sbo"],
            base_offset=fields["base_offset"],
            swizzle=None if layout_type is None else self.swizzles.get(layout_type),
        )


_OFFSETS = {"lbo": (16, 0x3FFF, 16), "sbo": (32, 0x3FFF, 16), "base_offset": (49, 7, 1)}
WGMMA = Words({**_OFFSETS, "layout_type": (62, 3, 1)}, {code: mode for mode, code in GMMA_LAYOUT_TYPE.items()})
TCGEN05 = Words({**_OFFSETS, "layout_type": (61, 7, 1)}, {code: mode for mode, code in SMEM_LAYOUT_TYPE.items()})
