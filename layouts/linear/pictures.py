"""Picture of a linear layout: its matrix over F2."""

from __future__ import annotations

from typing import Any

from ..grids.grid import Axis, Cell, Grid


def matrix_grid(layout: Any, title: str | None = None) -> Grid:  # noqa: ANN401 - LinearLayout
    """Return the grid of a linear layout's matrix: the bits of the outputs that each input bit sets.

    Parameters
    ----------
    layout : LinearLayout
    title : str, optional
        Default: its dimensions with their sizes.

    Examples
    --------
    >>> from cutepy.layouts import LinearLayout
    >>> grid = matrix_grid(LinearLayout({"lane": [[1], [3]]}, {"offset": 4}))
    >>> grid.title, [[cell.text for cell in row] for row in grid.cells]
    ('lane 4 -> offset 4', [['1', '1'], ['0', '1']])
    """
    inputs, outputs = (_bits(sizes) for sizes in (layout.in_dims, layout.out_dims))
    columns = layout.columns
    colours = {name: number for number, name in enumerate(layout.in_dims)}

    def cell(i: int, j: int) -> Cell:
        bit = columns[j] >> i & 1
        notes = (("input", inputs[j][1]), ("output", outputs[i][1]))
        return Cell(str(bit), colour=colours[inputs[j][0]] if bit else None, notes=notes)

    sizes = (", ".join(f"{name} {size}" for name, size in dims.items()) for dims in (layout.in_dims, layout.out_dims))
    return Grid(
        Axis(len(outputs), label=[label for _, label in outputs]),
        Axis(len(inputs), label=[label.partition("=")[2] for _, label in inputs], notes=_starts(inputs)),
        cell,
        title=" -> ".join(sizes) if title is None else title,
        caption=("a column for each bit of the inputs, a row for each bit of the outputs",),
        colours="the input's dimension",
    )


def _bits(sizes: dict[str, int]) -> list[tuple[str, str]]:
    """List the bits of some dimensions: (dimension, bit), lowest first."""
    return [(name, f"{name}={1 << bit}") for name, size in sizes.items() for bit in range(size.bit_length() - 1)]


def _starts(bits: list[tuple[str, str]]) -> list[str]:
    """Label each dimension at its first bit only, so that columns stay narrow."""
    names = [name for name, _ in bits]
    return [name if names.index(name) == place else "" for place, name in enumerate(names)]
