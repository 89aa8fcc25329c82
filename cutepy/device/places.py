"""Where in an accumulator subtile a thread's registers are, told by the accumulator's layout (plain Python)."""

from functools import cache
from typing import NamedTuple

from cutepy.layouts import Layout, flatten, sm90
from cutepy.layouts.sm90 import arch


class Step(NamedTuple):
    """A mode of the threads: thread t is at (t // below % extent) times these rows and columns, summed over modes."""

    extent: int
    below: int
    rows: int
    columns: int


class Places(NamedTuple):
    """The places of a subtile's accumulators.

    Attributes
    ----------
    threads : tuple of Step
        From a thread's index in its warpgroup to its first register's place.
    registers : tuple of (int, int)
        Row and column of each register, counted from the first one's.
    rows, columns : tuple of int
        The different ones among these, ascending.
    """

    threads: tuple[Step, ...]
    registers: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def slot(self, shape: str, register: int) -> int:
        """Tell which of the values that vary with rows, columns, both or nothing belongs to a register."""
        row, column = self.registers[register]
        slots = {"tile": register, "row": self.columns.index(column), "column": self.rows.index(row), "scalar": 0}
        return slots[shape]

    def count(self, shape: str) -> int:
        """Count a thread's different values that vary with rows, columns, both or nothing."""
        counts = {"tile": len(self.registers), "row": len(self.columns), "column": len(self.rows), "scalar": 1}
        return counts[shape]

    def registers_of(self, shape: str, slot: int) -> list[int]:
        """List the registers that a value belongs to."""
        return [register for register in range(len(self.registers)) if self.slot(shape, register) == slot]


@cache
def accumulator_places(columns: int) -> Places:
    """Give the places of a warpgroup's accumulators of 64 rows and these columns.

    Examples
    --------
    >>> places = accumulator_places(16)
    >>> places.registers
    ((0, 0), (0, 1), (8, 0), (8, 1), (0, 8), (0, 9), (8, 8), (8, 9))
    >>> places.threads
    (Step(extent=4, below=1, rows=0, columns=2), Step(extent=8, below=4, rows=1, columns=0), Step(extent=4, below=32, rows=16, columns=0))
    """  # noqa: E501
    tv = sm90.wgmma_traits(f"SM90_{arch.WGMMA_M}x{columns}x16_F32F16F16_SS").c_layout
    threads, registers = tv[0], tv[1]
    assert isinstance(threads, Layout)
    assert isinstance(registers, Layout)
    steps, below = [], 1
    extents, strides = flatten(threads.shape), flatten(threads.stride)
    for extent, stride in zip(_listed(extents), _listed(strides), strict=True):
        steps.append(Step(extent, below, stride % arch.WGMMA_M, stride // arch.WGMMA_M))
        below *= extent
    offsets = [registers(v) for v in range(registers.size())]
    placed = tuple((offset % arch.WGMMA_M, offset // arch.WGMMA_M) for offset in offsets)
    rows, across = sorted({row for row, _ in placed}), sorted({column for _, column in placed})
    return Places(tuple(steps), placed, tuple(rows), tuple(across))


def _listed(value: object) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)
