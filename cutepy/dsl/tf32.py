"""MMA operation of tf32 for warpgroups, which the DSL lacks although its compiler has the instruction."""

from __future__ import annotations

from typing import Any

from cutepy.dsl.version import require

_warpgroup: Any = require("cutlass.cute.nvgpu.warpgroup", "MmaF8Op._verify")
_cutlass: Any = require("cutlass", "TFloat32", "Float32")

MMA_K = 8
"""Elements along K of one MMA: 32 bytes."""


class MmaTF32Op(_warpgroup.MmaF8Op):  # type: ignore[misc]
    """`wgmma.mma_async` of tf32, m64nNk8, which sums in fp32; both operands are K-major.

    All but the types and K is what the operation of 8-bit floats has, and the atom is made of the types that it is
    given.

    Parameters
    ----------
    shape_mnk : (int, int, int)
        (64, N, 8); N a multiple of 8 up to 256.
    a_src : OperandSource
        Source of A.
    a_major_mode, b_major_mode : OperandMajorMode
        K.

    Raises
    ------
    ValueError
        If K is another, or an operand is MN-major.
    """

    descriptive_name = "warpgroup TF32 MMA Operation"

    def __init__(self, shape_mnk: tuple[int, int, int], a_src: Any, a_major_mode: Any, b_major_mode: Any) -> None:  # noqa: ANN401
        tf32 = _cutlass.TFloat32
        super().__init__(tf32, tf32, _cutlass.Float32, shape_mnk, a_src, a_major_mode, b_major_mode)

    def _verify(self) -> None:
        majors = (self.a_major_mode.name, self.b_major_mode.name)
        if self.shape_mnk[2] != MMA_K or majors != ("K", "K"):
            raise ValueError(
                f"a wgmma of tf32 has K = {MMA_K} and K-major operands, got shape {self.shape_mnk} and majors {majors}"
            )
