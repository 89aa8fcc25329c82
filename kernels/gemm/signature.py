"""Signature of a GEMM kernel: types, majors and epilogue; one compiled kernel serves any extents."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from cutepy.device import rules
from cutepy.epilogues.functions import identity
from cutepy.epilogues.standard import standard
from cutepy.kernels.gemm.elements import FLOAT8, INPUTS, OUTPUTS, SUMS, multipliable
from cutepy.kernels.gemm.output_signature import OutputSignature, check_each
from cutepy.runtime.dtypes import DTYPES

OperandMajor = Literal["k", "mn"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
ACTIVATIONS = get_args(Activation)

_OF_EACH = ("dtype", "major", "align")
"""Fields that describe A, and B."""
_TURNED = {"row": "col", "col": "row", "": ""}


@dataclass(frozen=True, kw_only=True)
class GemmSignature(OutputSignature):
    """Types, majors and epilogue of a product A B^T: one compiled kernel serves any extents.

    Attributes
    ----------
    a_dtype, b_dtype : str
        Torch's names. Both float16, both bfloat16, both float32, which is rounded to tf32, each one of the two 8-bit
        floats, or each int8 or uint8.
    a_major, b_major : "k" or "mn"
        Contiguous extent. 8-bit and 32-bit operands are "k": wgmma transposes 16-bit elements only.
    a_align, b_align : 16, 8 or 4
        Divisor of addresses, strides and contiguous extents, in bytes. TMA loads what has 16, threads the
        rest, by cp.async.
    out_dtype : str
        "float16", "bfloat16" or "float32": of the results that the epilogue doesn't round itself. "int32": the sums of
        products of integers, without an epilogue; any other epilogue takes these sums converted to fp32.
    out_major : "row" or "col"
        "row" if N is contiguous in results that are tiles.
    batch_modes : int
        Modes of a batch: 0 for matrices; 1 for a batch of them, each at one stride from the last; up to 3 where several
        strides are needed. A, B, and operands and results that are tiles, all have them.
    epilogue : str
        The text of the epilogue's graph (`cutepy.epilogues`).
    operand_types : tuple of (str, str)
        Of each of the epilogue's operands: dtype, "" of a number of the host, and of a tile "row" or "col", else "".
    scale_rows : (int, int) or None
        For 8-bit operands: their sums are promoted to fp32 every 128 of K, and scaled by one number for each 128 of K
        and so many rows of A, and of B: 1, 128, or 0 for none. None: the tensor cores sum all of K, and nothing scales
        before the epilogue.
    tma_scales : (bool, bool)
        True if TMA loads the scales of A, and of B, of single rows, which lie beside each other; else threads do.

    Examples
    --------
    >>> GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e5m2", a_major="mn", out_dtype="bfloat16")
    Traceback (most recent call last):
    ...
    ValueError: a must be K-major (its K extent contiguous) for 8-bit types, got "mn"; wgmma transposes 16-bit elements only, so copy a to a K-major tensor
    """  # noqa: E501

    a_dtype: str
    b_dtype: str
    a_major: OperandMajor = "k"
    b_major: OperandMajor = "k"
    a_align: int = rules.TMA_BYTES
    b_align: int = rules.TMA_BYTES
    scale_rows: tuple[int, int] | None = None
    tma_scales: tuple[bool, bool] = (False, False)

    @classmethod
    def standard(
        cls,
        *,
        c_dtype: str | None = None,
        c_major: str | None = None,
        bias_dtype: str | None = None,
        activation: str | None = None,
        **types: Any,  # noqa: ANN401
    ) -> "GemmSignature":
        """Make the signature of D = activation(A B^T + C + bias).

        Parameters
        ----------
        c_dtype, c_major : str, optional
            Type and major of C, as of D; None without C.
        bias_dtype : str, optional
            Type of a vector of N elements that is added to each row; None without one.
        activation : str, optional
            "relu", "gelu", "gelu_tanh" or "silu", of the fp32 sum before it is rounded.
        **types
            Of A, B and D.

        Examples
        --------
        >>> half = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
        >>> print(GemmSignature.standard(**half, bias_dtype="float32", activation="relu").graph)
        (bias: row)
          v0 = acc()
          v1 = operand('bias')
          v2 = add(v0, v1)
          v3 = const(0.0)
          v4 = le(v2, v3)
          v5 = where(v4, v3, v2)
          return v5
        """
        check_each(
            ("c_dtype", c_dtype, (*OUTPUTS, None)),
            ("c_major", c_major, ("row", "col") if c_dtype else (None,)),
            ("bias_dtype", bias_dtype, (*OUTPUTS, None)),
            ("activation", activation, (*ACTIVATIONS, None)),
        )
        epilogue = standard(c=c_dtype is not None, bias=bias_dtype is not None, activation=activation)
        kinds = {"c": (c_dtype or "", c_major or ""), "bias": (bias_dtype or "", "")}
        return cls(**types, epilogue=epilogue.text, operand_types=tuple(kinds[each.name] for each in epilogue.operands))

    def __post_init__(self) -> None:
        """Refuse combinations that no wgmma instruction or epilogue has."""
        check_each(
            ("a_dtype", self.a_dtype, INPUTS),
            ("b_dtype", self.b_dtype, INPUTS),
            ("a_major", self.a_major, ("k", "mn")),
            ("b_major", self.b_major, ("k", "mn")),
            ("a_align", self.a_align, rules.CP_ASYNC_BYTES),
            ("b_align", self.b_align, rules.CP_ASYNC_BYTES),
        )
        self.check_outputs((*OUTPUTS, SUMS) if self.sum_dtype == SUMS else OUTPUTS)
        if not multipliable(self.a_dtype, self.b_dtype):
            raise ValueError(
                f"a and b must have one dtype, or each an 8-bit float or each an 8-bit integer one, got {self.a_dtype} "
                f"and {self.b_dtype}; convert one of them"
            )
        for name, major in (("a", self.a_major), ("b", self.b_major)):
            if self.operand_bits != 16 and major != "k":
                raise ValueError(
                    f"{name} must be K-major (its K extent contiguous) for {self.operand_bits}-bit types, got "
                    f'"{major}"; wgmma transposes 16-bit elements only, so copy {name} to a K-major tensor'
                )
        if self.a_dtype == "float32" and self.by_threads != (False, False):
            raise ValueError(
                f"a_align and b_align must be {rules.TMA_BYTES} for float32, which only TMA rounds to tf32, got "
                f"{self.a_align} and {self.b_align}"
            )
        if self.out_dtype == SUMS and self.graph != identity.graph:
            raise ValueError(
                f"{SUMS} results are the sums as they are, and an epilogue computes in fp32, got {self.graph}; use "
                f"an out_dtype of {', '.join(OUTPUTS)}, or no epilogue"
            )
        if self.scale_rows is not None:
            check_each(
                *(
                    (f"scale_rows of {name}", rows, (0, 1, 128))
                    for name, rows in zip("ab", self.scale_rows, strict=True)
                )
            )
            if self.a_dtype not in FLOAT8 or self.batch_modes:
                raise ValueError(
                    f"sums of 8-bit floats without a batch are promoted, got {self.a_dtype} and {self.batch_modes} "
                    "batch modes; leave out scale_rows"
                )
        rules.check_tma_scales(self.scale_rows or (0, 0), self.tma_scales)

    @cached_property
    def transposed(self) -> "GemmSignature | None":
        """Signature of the transposed product, A and B exchanged; None where the epilogue groups columns."""
        transposed = self.graph.transposed
        if transposed is None:
            return None
        return replace(
            self,
            **{f"{one}_{what}": getattr(self, f"{other}_{what}") for what in _OF_EACH for one, other in ("ab", "ba")},
            out_major="col" if self.out_major == "row" else "row",
            epilogue=transposed.text,
            operand_types=tuple((dtype, _TURNED[major]) for dtype, major in self.operand_types),
            scale_rows=self.scale_rows and (self.scale_rows[1], self.scale_rows[0]),
            tma_scales=self.tma_scales[::-1],
        )

    @property
    def name(self) -> str:
        """Name of the kernel without its tiles."""
        types = f"{self.a_dtype}_{self.a_major}_{self.b_dtype}_{self.b_major}_{self.out_dtype}_{self.out_major}"
        types += f"_align{self.a_align}x{self.b_align}" if any(self.by_threads) else ""
        types += "" if self.scale_rows is None else "_promoted{}x{}".format(*self.scale_rows)
        types += "_tma" * any(self.tma_scales)
        return f"{types}{self.epilogue_name}"

    @property
    def by_threads(self) -> tuple[bool, bool]:
        """True for A, and for B, if threads load it because TMA doesn't reach it."""
        return self.a_align < rules.TMA_BYTES, self.b_align < rules.TMA_BYTES

    @property
    def operand_bits(self) -> int:
        """Width of an element of A or B."""
        return DTYPES[self.a_dtype].bits

    @property
    def sum_dtype(self) -> str:
        """Type of the accumulators: "float32", or "int32" of integers."""
        return rules.accumulator_dtype(self.a_dtype)
