"""Configurations of kernels that compute rows, beside those of normalisations."""

from __future__ import annotations

from dataclasses import dataclass

from cutepy.epilogues.operations import LARGEST
from cutepy.kernels.rows.tiling import LEAST_CTA, RowTiling, power_of_two
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class SoftmaxConfig:
    """Configuration of a softmax.

    Attributes
    ----------
    tiling : RowTiling
    logarithm : bool
        True if the logarithm is computed.
    staged : bool
        True if rows wait in shared memory, in which they take no registers.
    rolls : bool
        True if a loop goes through the vectors of a staged row: in 32 registers, so that more CTAs run on an SM.
    """

    tiling: RowTiling
    logarithm: bool = False
    staged: bool = False
    rolls: bool = False

    @property
    def kind(self) -> str:
        """Name of what it computes."""
        return "log_softmax" if self.logarithm else "softmax"


@dataclass(frozen=True)
class CrossEntropyConfig:
    """Configuration of a cross entropy.

    Attributes
    ----------
    tiling : RowTiling
    smooths : bool
        True if labels are smoothed.
    adds_z : bool
        True if the square of the logarithm of the sum is added.
    """

    tiling: RowTiling
    smooths: bool = False
    adds_z: bool = False


LIMITS = {**LARGEST, "int8": 127.0}
"""Largest magnitudes of results that rows are quantised to."""
DENORMAL_STEP = 2.0**-149
"""Is added to scales, so that denormal ones are rounded up."""


@dataclass(frozen=True)
class QuantiseConfig:
    """Configuration of a quantisation.

    Attributes
    ----------
    tiling : RowTiling
    dtype : str
        Of the results; "" if only the largest magnitude of each row is found.
    scaled : str
        What shares a scale: the "tensor", whose scale is given, each "row", or each "block" of 128 of a row.
    staged : bool
        True if rows wait in shared memory, in which they take no registers.
    """

    tiling: RowTiling
    dtype: str = ""
    scaled: str = ""
    staged: bool = False

    @property
    def kind(self) -> str:
        """Name of what it computes."""
        return f"quantise_by_{self.scaled}_{self.dtype}" if self.dtype else "largest"


@dataclass(frozen=True)
class SelectionConfig:
    """Configuration of a selection of the largest elements.

    Attributes
    ----------
    tiling : RowTiling
        Of pieces of rows, of k columns at least, without a cluster.
    k : int
        How many are selected.
    room : int
        Elements of a row that are sorted in shared memory, or, by the lanes of a narrow row, of a block: a power of 2,
        k at least, and the sorters.
    sorters : int
        Threads of a row that sort them.
    largest : bool
        False if the smallest are selected.
    fills : bool
        True if rows fill the tiling, or so many of them.
    """

    tiling: RowTiling
    k: int
    room: int
    sorters: int
    largest: bool = True
    fills: bool = False

    @property
    def exchanges(self) -> int:
        """Steps of a sorting in which warps exchange elements."""
        levels = (self.sorters // arch.WARP_THREADS).bit_length() - 1
        return levels * (levels + 1) // 2 if self.sorters > arch.WARP_THREADS else 0

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        return f"{'top' if self.largest else 'bottom'}{self.k}_{self.tiling.part_name}"


@dataclass(frozen=True)
class SampleConfig:
    """Configuration of a sample of each row.

    Attributes
    ----------
    tiling : RowTiling
    bits : int
        As of `SelectionConfig`.
    k : int
        How many of the largest classes may be drawn, and those that equal the last of them; 0 for all.
    cuts : bool
        True if no more classes may be drawn than have a probability in all.
    greedy : bool
        True if the largest is drawn.
    """

    tiling: RowTiling
    bits: int
    k: int = 0
    cuts: bool = False
    greedy: bool = False

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        kind = "greedy_" if self.greedy else f"top{self.k}_" if self.k else ""
        return f"{kind}{'cut_' if self.cuts else ''}{self.tiling.name}"


PHILOX_FACTORS, PHILOX_STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
"""Constants of Philox4x32 (Salmon et al., 2011)."""
KEY_BITS = {"bfloat16": 16, "float16": 19, "float32": 32}
"""High bits of an fp32 number that tell those of each type apart."""
HEADS = 4
"""Heads that a thread rotates by the same cosines and sines."""


@dataclass(frozen=True)
class RotaryConfig:
    """Configuration of a rotary embedding.

    A piece is one vector of elements that are rotated with those of another vector, or one that stays as it is.

    Attributes
    ----------
    elems : int
        Elements of a vector, which a thread loads at once: a divisor of `head` and `width`.
    head, width : int
        Columns of a head; and of the cosines, which rotate twice as many columns.
    interleaved : bool
        True if neighbours are rotated, else the first `width` columns with those after them.
    """

    elems: int
    head: int
    width: int
    interleaved: bool = False

    @property
    def rotated(self) -> int:
        """Pieces that are rotated."""
        return self.width // self.elems

    @property
    def lanes(self) -> int:
        """Threads of a head, a power of 2: each has one piece at most."""
        return power_of_two(self.rotated + (self.head - 2 * self.width) // self.elems)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return max(LEAST_CTA, self.lanes)

    @property
    def slots(self) -> int:
        """Groups of heads of a CTA."""
        return self.threads // self.lanes

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        return f"{'interleaved_' if self.interleaved else ''}{self.head}x{self.width}"


@dataclass(frozen=True)
class GatedConfig:
    """Configuration of a gated activation.

    Attributes
    ----------
    tiling : RowTiling
        Of rows that its `ctas` part without a cluster.
    activation : str
        Of the gate: "silu", "gelu" or "gelu_tanh".
    """

    tiling: RowTiling
    activation: str = "silu"

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        return f"{self.activation}_{self.tiling.part_name}"
