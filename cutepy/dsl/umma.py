"""Conversion of `sm100.UmmaTraits` to the DSL's tiled MMAs of tcgen05."""

from __future__ import annotations

from typing import Any

from cutepy.dsl.version import require
from cutepy.layouts import sm100

_TYPES = {
    "f16": "Float16", "bf16": "BFloat16", "e4m3": "Float8E4M3FN", "e5m2": "Float8E5M2", "e2m1": "Float4E2M1FN",
    "ue4m3": "Float8E4M3FN", "ue8m0": "Float8E8M0FNU",
}  # fmt: skip
"""Element types of operands and scale factors: PTX's names -> the DSL's."""


def to_tiled_umma(traits: sm100.UmmaTraits) -> Any:  # noqa: ANN401
    """Build the DSL's form of one tcgen05.mma, of one CTA or a pair, inside a traced function.

    Operands come from shared memory, and sums are fp32.

    Parameters
    ----------
    traits : UmmaTraits
        Of kind f16, f8f6f4 with 8-bit floats, mxf8f6f4 with 8-bit floats, mxf4 or mxf4nvf4.

    Raises
    ------
    ValueError
        If the MMA is sparse, ``.ws``, of another kind, takes A from tensor memory, or sums in another type.
    """
    descriptor, kind = traits.descriptor, traits.kind.name
    types = (traits.a_dtype, traits.b_dtype)
    known = kind in _OPERATIONS and all(dtype in _TYPES for dtype in types)
    if not known or descriptor.sparse or traits.ws or traits.a_source != "smem" or traits.c_dtype != "f32":
        raise ValueError(
            f"to_tiled_umma takes dense tcgen05.mma of {', '.join(_OPERATIONS)} that read shared memory and sum in "
            f"f32, got {traits.name}"
        )
    if kind in ("f8f6f4", "mxf8f6f4") and "e2m1" in types:
        raise ValueError(f"to_tiled_umma takes 4-bit operands packed, of mxf4 and mxf4nvf4, got {traits.name}")
    cutlass = require("cutlass", *set(_TYPES.values()), "Float32")
    cute = require("cutlass.cute", "make_tiled_mma", "make_mma_atom")
    nvgpu = require("cutlass.cute.nvgpu", "OperandMajorMode", *(f"tcgen05.{name}" for name in _OPERATIONS.values()))
    tcgen05 = nvgpu.tcgen05
    a, b = (getattr(cutlass, _TYPES[dtype]) for dtype in types)
    majors = [getattr(nvgpu.OperandMajorMode, major) for major in (descriptor.a_major, descriptor.b_major)]
    group = tcgen05.CtaGroup.ONE if traits.cta_group == 1 else tcgen05.CtaGroup.TWO
    place = (traits.shape_mnk, group, tcgen05.OperandSource.SMEM)
    make = getattr(tcgen05, _OPERATIONS[kind])
    if kind == "f16":
        op = make(a, cutlass.Float32, *place, *majors)
    elif kind == "f8f6f4":
        op = make(a, b, cutlass.Float32, *place, *majors)
    elif kind == "mxf8f6f4":
        op = make(a, b, *place, *majors)
    elif kind == "mxf4":
        op = make(*place)
    else:
        op = make(getattr(cutlass, _TYPES[str(descriptor.scale_dtype)]), *place)
    return cute.make_tiled_mma(cute.make_mma_atom(op))


_OPERATIONS = {
    "f16": "MmaF16BF16Op",
    "f8f6f4": "MmaF8F6F4Op",
    "mxf8f6f4": "MmaMXF8F6F4Op",
    "mxf4": "MmaMXF4Op",
    "mxf4nvf4": "MmaMXF4NVF4Op",
}
"""Kinds of tcgen05.mma -> the DSL's operations."""
