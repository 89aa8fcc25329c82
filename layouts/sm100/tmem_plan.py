"""Plan of a CTA's tensor memory: named runs of columns, and the allocation that holds them.

References
----------
PTX ISA, "tcgen05.alloc": a power of two of columns from 32 to 512.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import integer
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid
from .arch import MIN_ALLOCATION_COLUMNS, TMEM_COLUMNS
from .tmem import TmemTensor

Region = int | TmemTensor | tuple["int | TmemTensor", int]
"""Columns, a tensor, or one of these and how many of them stand after each other: stages."""


def allocation_columns(columns: int) -> int:
    """Return the columns that tcgen05.alloc must be asked for to have at least these.

    Raises
    ------
    LayoutError
        If the tensor memory of a CTA is smaller.

    Examples
    --------
    >>> [allocation_columns(n) for n in (1, 32, 33, 300)]
    [32, 32, 64, 512]
    """
    columns = integer("allocation_columns", "columns", columns)
    if not 1 <= columns <= TMEM_COLUMNS:
        raise LayoutError(
            "allocation_columns",
            (columns,),
            f"columns must be 1 to {TMEM_COLUMNS}, those of a CTA, got {columns}",
            "" if columns < 1 else "use fewer stages, or a smaller N",
        )
    return max(MIN_ALLOCATION_COLUMNS, 1 << (columns - 1).bit_length())


@dataclass(frozen=True)
class TmemPlan(Drawable):
    """Plan of tensor memory: name -> first column, counted from the allocation's.

    Parameters
    ----------
    names : tuple of str
        Names of the regions, in order.
    sizes : tuple of int
        Columns of each.

    Raises
    ------
    LayoutError
        If a region has no column, a name comes twice, or all together exceed 512 columns.

    Examples
    --------
    >>> from cutepy.layouts.sm100 import tmem_accumulator, tmem_scale_factors
    >>> plan = TmemPlan.of(D=(tmem_accumulator(128, 128), 2), SFA=tmem_scale_factors(128, 4), SFB=4)
    >>> plan["SFA"], plan.used, plan.columns, plan.spare
    (256, 264, 512, 248)
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes) or len(set(self.names)) != len(self.names):
            raise self._error("each region needs a name of its own and a number of columns")
        for name, columns in zip(self.names, self.sizes, strict=True):
            if integer("TmemPlan", name, columns) < 1:
                raise self._error(f"{name} must have 1 column or more, got {columns}")
        if self.used > TMEM_COLUMNS:
            each = ", ".join(f"{name} {columns}" for name, columns in zip(self.names, self.sizes, strict=True))
            raise self._error(
                f"the regions take {self.used} columns, more than the {TMEM_COLUMNS} of a CTA: {each}",
                "use fewer stages, or a smaller N",
            )

    def _error(self, condition: str, hint: str = "") -> LayoutError:
        return LayoutError("TmemPlan", (self.names,), condition, hint)

    @classmethod
    def of(cls, **regions: Region) -> TmemPlan:
        """Return the plan of regions by name, in this order.

        Parameters
        ----------
        **regions : int, TmemTensor, or (one of these, int)
            Columns, or a tensor that takes them; with a number, that many stages.
        """
        return cls(tuple(regions), tuple(_columns(name, region) for name, region in regions.items()))

    def __getitem__(self, name: str) -> int:
        for known, start, _ in self.rows():
            if known == name:
                return start
        raise KeyError(f"the plan has no region {name!r}; it has {', '.join(self.names)}")

    def rows(self) -> list[tuple[str, int, int]]:
        """List the regions as name, first column and columns."""
        starts = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        return list(zip(self.names, starts, self.sizes, strict=True))

    @property
    def used(self) -> int:
        """Columns of all regions."""
        return sum(self.sizes)

    @property
    def columns(self) -> int:
        """Columns to ask tcgen05.alloc for."""
        return allocation_columns(max(1, self.used))

    @property
    def spare(self) -> int:
        """Columns of the allocation that no region uses."""
        return self.columns - self.used

    def _picture_(self) -> Grid:
        """Draw a table of the regions."""
        from .pictures import tmem_plan_grid

        return tmem_plan_grid(self)


def _columns(name: str, region: Region) -> int:
    one, stages = region if isinstance(region, tuple) else (region, 1)
    columns = one.columns if isinstance(one, TmemTensor) else integer("TmemPlan.of", name, one)
    return columns * integer("TmemPlan.of", f"stages of {name}", stages)
