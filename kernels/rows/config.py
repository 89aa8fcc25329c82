"""Configurations of kernels that compute rows, beside those of normalisations."""

from __future__ import annotations

from dataclasses import dataclass

from cutepy.kernels.rows.tiling import LEAST_CTA, RowTiling, power_of_two


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
    """

    tiling: RowTiling
    logarithm: bool = False
    staged: bool = False

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
