"""Signature of Blackwell's GEMM: types, majors, scale factors and epilogue; one compiled kernel serves any extents."""

from dataclasses import dataclass
from typing import NamedTuple

from cutepy.kernels.gemm.elements import FLOAT8, OUTPUTS
from cutepy.kernels.gemm.output_signature import OutputSignature, check_each
from cutepy.kernels.gemm.signature import OperandMajor
from cutepy.layouts.sm90 import Major
from cutepy.runtime.dtypes import DTYPES

FLOAT4 = "float4_e2m1fn_x2"
"""Torch's name of e2m1, two to a byte."""


class Scaling(NamedTuple):
    """Scale factors of a kind of block-scaled operands.

    Attributes
    ----------
    kind : str
        Kind of tcgen05.mma.
    dtype : str
        Type of the factors, by torch's name.
    vector : int
        Elements along K that share one.
    """

    kind: str
    dtype: str
    vector: int


NVFP4 = Scaling("mxf4nvf4", "float8_e4m3fn", 16)
MXFP4 = Scaling("mxf4", "float8_e8m0fnu", 32)
MXFP8 = Scaling("mxf8f6f4", "float8_e8m0fnu", 32)


@dataclass(frozen=True, kw_only=True)
class UmmaGemmSignature(OutputSignature):
    """Types, majors, scale factors and epilogue of a product A B^T.

    Attributes
    ----------
    a_dtype, b_dtype : str
        Torch's names: both float16, both bfloat16, each one of the two 8-bit floats, or both float4_e2m1fn_x2.
    a_major, b_major : "k" or "mn"
        Contiguous extent. Packed 4-bit operands are "k".
    scale_dtype : str, optional
        Torch's name of the type of the scale factors, of A and B along K. float4_e2m1fn_x2 has them: float8_e4m3fn for
        each 16 (nvfp4), float8_e8m0fnu for each 32 (mxfp4). 8-bit floats may: float8_e8m0fnu for each 32 (mxfp8).

    Examples
    --------
    >>> nvfp4 = {"a_dtype": FLOAT4, "b_dtype": FLOAT4, "scale_dtype": "float8_e4m3fn"}
    >>> UmmaGemmSignature(**nvfp4, out_dtype="bfloat16").scaling.vector
    16
    >>> UmmaGemmSignature(a_dtype=FLOAT4, b_dtype=FLOAT4, out_dtype="bfloat16")
    Traceback (most recent call last):
    ...
    ValueError: float4_e2m1fn_x2 is multiplied with scale factors of float8_e4m3fn or float8_e8m0fnu, got None; pass scale_a and scale_b
    """  # noqa: E501

    a_dtype: str
    b_dtype: str
    a_major: OperandMajor = "k"
    b_major: OperandMajor = "k"
    scale_dtype: str | None = None

    def __post_init__(self) -> None:
        """Refuse combinations that no tcgen05.mma or epilogue has."""
        inputs = ("float16", "bfloat16", *FLOAT8, FLOAT4)
        check_each(
            ("a_dtype", self.a_dtype, inputs),
            ("b_dtype", self.b_dtype, inputs),
            ("a_major", self.a_major, ("k", "mn")),
            ("b_major", self.b_major, ("k", "mn")),
        )
        self.check_outputs(OUTPUTS)
        if self.a_dtype != self.b_dtype and not {self.a_dtype, self.b_dtype} <= set(FLOAT8):
            raise ValueError(
                f"a and b must have one dtype, or each an 8-bit float, got {self.a_dtype} and {self.b_dtype}; convert "
                "one of them"
            )
        known = tuple(scaling.dtype for scaling in self._scalings)
        if self.operand_bits == 4 and self.scale_dtype not in known:
            raise ValueError(
                f"{FLOAT4} is multiplied with scale factors of {' or '.join(known)}, got {self.scale_dtype}; pass "
                "scale_a and scale_b"
            )
        if self.scale_dtype not in (*known, None):
            raise ValueError(
                f"scale factors of {self.a_dtype} must be of {' or '.join(known) or 'no type'}, got {self.scale_dtype}"
            )
        if self.operand_bits == 4 and (self.a_major, self.b_major) != ("k", "k"):
            raise ValueError(
                f"packed 4-bit operands must be K-major, got {self.a_major} and {self.b_major}: two elements of a byte "
                "are neighbours along K"
            )

    @property
    def _scalings(self) -> tuple[Scaling, ...]:
        if self.operand_bits == 4:
            return NVFP4, MXFP4
        return (MXFP8,) if self.operand_bits == 8 else ()

    @property
    def scaling(self) -> Scaling | None:
        """Scale factors of the operands; None without."""
        return next((each for each in self._scalings if each.dtype == self.scale_dtype), None)

    @property
    def kind(self) -> str:
        """Kind of tcgen05.mma."""
        if self.scaling is not None:
            return self.scaling.kind
        return "f16" if self.operand_bits == 16 else "f8f6f4"

    @property
    def operand_bits(self) -> int:
        """Width of an element of A or B."""
        return DTYPES[self.a_dtype].bits

    @property
    def majors(self) -> tuple[Major, Major]:
        """The majors of A and B by the hardware's names."""
        return ("K" if self.a_major == "k" else "MN"), ("K" if self.b_major == "k" else "MN")

    @property
    def name(self) -> str:
        """Name of the kernel without its tiles."""
        types = f"{self.a_dtype}_{self.a_major}_{self.b_dtype}_{self.b_major}_{self.out_dtype}_{self.out_major}"
        return f"{types}{f'_{self.scale_dtype}' if self.scale_dtype else ''}{self.epilogue_name}"
