"""Signature of a kernel's results: types, majors and epilogue, and their traffic through shared memory."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph
from cutepy.epilogues.standard import Standard, standard_of
from cutepy.runtime.dtypes import DTYPES

OutputMajor = Literal["row", "col"]

MAX_BATCH_MODES = 3
"""Largest number of batch modes beside the two of a matrix: TMA has five."""


class StagedKind(NamedTuple):
    """Kind of subtile in shared memory that the epilogue reads or writes.

    Attributes
    ----------
    name : str
        Name of the subtiles' region.
    place : int
        Among the epilogue's operands or results.
    dtype : str
    width : int
        The accumulators have so many times the columns.
    major : "row" or "col"
    """

    name: str
    place: int
    dtype: str
    width: int
    major: str


@dataclass(frozen=True, kw_only=True)
class OutputSignature:
    """Types, majors and epilogue of a product's results and of the epilogue's operands.

    Attributes
    ----------
    out_dtype : str
        Torch's name of the type of the results that the epilogue doesn't round itself.
    out_major : "row" or "col"
        "row" if N is contiguous in results that are tiles.
    batch_modes : int
        Modes of a batch: 0 for matrices.
    epilogue : str
        The text of the epilogue's graph (`cutepy.epilogues`).
    operand_types : tuple of (str, str)
        Of each of the epilogue's operands: dtype, "" of a number of the host, and of a tile "row" or "col", else "".
    """

    out_dtype: str
    out_major: OutputMajor = "row"
    batch_modes: int = 0
    epilogue: str = identity.text
    operand_types: tuple[tuple[str, str], ...] = ()

    def check_outputs(self, dtypes: tuple[str, ...]) -> None:
        """Refuse results and operands that no epilogue has, with results of other types than these.

        Raises
        ------
        ValueError
            If there are any.
        """
        check_each(
            ("out_dtype", self.out_dtype, dtypes),
            ("out_major", self.out_major, ("row", "col")),
            ("batch_modes", self.batch_modes, range(MAX_BATCH_MODES + 1)),
        )
        operands = self.graph.operands
        if len(self.operand_types) != len(operands):
            raise ValueError(f"operand_types must be of {len(operands)} operands, got {len(self.operand_types)}")
        for operand, (dtype, major) in zip(operands, self.operand_types, strict=True):
            known = dtype in DTYPES or (not dtype and operand.shape == "scalar")
            if (operand.shape == "tile") != (major in ("row", "col")) or not known:
                raise ValueError(f"{operand} can't be of {dtype or 'a number'} {major}")

    @cached_property
    def graph(self) -> Graph:
        """The epilogue's graph."""
        return Graph.parse(self.epilogue)

    @cached_property
    def stored(self) -> tuple[StagedKind, ...]:
        """Kinds of subtiles stored through shared memory: tile results, "sD", or "sD" with a number."""
        graph, numbered = self.graph, len(self.graph.results) > 1
        return tuple(
            StagedKind(
                f"sD{n}" if numbered else "sD",
                n,
                graph.dtype(result) or self.out_dtype,
                graph.width(result),
                self.out_major,
            )
            for n, result in enumerate(graph.results)
            if not graph.reduction(result)
        )

    @cached_property
    def added(self) -> tuple[StagedKind, ...]:
        """Kinds of subtiles read through shared memory beside A and B: tile operands, "sC", or "sC" with a number."""
        tiles = [n for n, operand in enumerate(self.graph.operands) if operand.shape == "tile"]
        return tuple(StagedKind(f"sC{n}" if len(tiles) > 1 else "sC", n, *self._kind(n)) for n in tiles)

    def _kind(self, place: int) -> tuple[str, int, str]:
        dtype, major = self.operand_types[place]
        return dtype, self.graph.operands[place].width, major

    @property
    def epilogue_name(self) -> str:
        """The epilogue and the batch as a kernel's name has them."""
        batch = f"_batch{self.batch_modes}" if self.batch_modes else ""
        known = standard_of(self.graph)
        if known is not None:
            return f"{self._standard_name(known)}{batch}"
        operands = "".join("_" + (dtype or "number") + major for dtype, major in self.operand_types)
        return f"_epilogue_{sha256(self.epilogue.encode()).hexdigest()[:12]}{operands}{batch}"

    def _standard_name(self, known: Standard) -> str:
        words = {"c": "plus", "bias": "columnbias" if known.is_transposed else "bias"}
        pairs = zip(self.graph.operands, self.operand_types, strict=True)
        parts = ["_".join(filter(None, (words[operand.name], *kind))) for operand, kind in pairs]
        return "".join(f"_{part}" for part in (*parts, known.activation) if part)

    @property
    def out_bits(self) -> int:
        """Width of an element of D."""
        return DTYPES[self.out_dtype].bits


def check_each(*named: tuple[str, object, Any]) -> None:
    """Check values by name, each with those that are allowed.

    Raises
    ------
    ValueError
        If one is none of these.
    """
    for name, value, allowed in named:
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value}")
