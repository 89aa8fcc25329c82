"""Grouped GEMM: one product for each group of rows, columns or K, whose extents only the device knows.

`cutepy.ops.grouped_gemm` computes it. `config` is plain Python; `compile_grouped` loads torch when it is first asked
for, and the DSL only where it must compile.
"""

from typing import TYPE_CHECKING

from cutepy.extras import loaded_on_use
from cutepy.kernels.grouped.choice import GroupedChoice as GroupedChoice, select_grouped as select_grouped
from cutepy.kernels.grouped.config import GroupedConfig as GroupedConfig

if TYPE_CHECKING:
    from cutepy.kernels.grouped.op import compile_grouped as compile_grouped

__all__ = ["GroupedChoice", "GroupedConfig", "compile_grouped", "select_grouped"]

__getattr__, __dir__ = loaded_on_use(__name__, {"compile_grouped": "op"})
