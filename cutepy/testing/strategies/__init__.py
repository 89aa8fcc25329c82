"""Hypothesis strategies for layouts.

Every strategy builds what it draws, so nothing is filtered out, and shrinks towards small flat values: a failing
layout ends as something like ``(2,2):(1,0)``. Sizes are small by default, so that a test can compare a whole function
with a table of its values.

>>> from hypothesis import given
>>> from cutepy.layouts import coalesce
>>> from cutepy.testing import strategies as lst
>>> @given(lst.layouts())
... def test_coalesce_keeps_the_function(layout):
...     flat = coalesce(layout)
...     assert [flat(i) for i in range(flat.size())] == [layout(i) for i in range(layout.size())]
>>> test_coalesce_keeps_the_function()
"""

from __future__ import annotations

from cutepy.extras import require

require("cutepy.testing.strategies", "hypothesis")

# ruff: noqa: E402 - a missing extra is reported before the rest is imported
from cutepy.testing.strategies.hopper import (
    gmma_atoms as gmma_atoms,
    smem_tiles as smem_tiles,
    wgmma_atom_names as wgmma_atom_names,
)
from cutepy.testing.strategies.layouts import (
    any_layouts as any_layouts,
    basis_layouts as basis_layouts,
    composed_layouts as composed_layouts,
    layouts as layouts,
    swizzles as swizzles,
    values as values,
)
from cutepy.testing.strategies.operands import (
    composable_pairs as composable_pairs,
    product_operands as product_operands,
    target_shapes as target_shapes,
    tiler_layouts as tiler_layouts,
    tilers as tilers,
)
from cutepy.testing.strategies.shapes import (
    coordinates as coordinates,
    int_tuples as int_tuples,
    shapes as shapes,
    slice_coordinates as slice_coordinates,
)

__all__ = [
    "any_layouts",
    "basis_layouts",
    "composable_pairs",
    "composed_layouts",
    "coordinates",
    "gmma_atoms",
    "int_tuples",
    "layouts",
    "product_operands",
    "shapes",
    "slice_coordinates",
    "smem_tiles",
    "swizzles",
    "target_shapes",
    "tiler_layouts",
    "tilers",
    "values",
    "wgmma_atom_names",
]
