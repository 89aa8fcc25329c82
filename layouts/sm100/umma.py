"""Traits of tcgen05.mma: shape, CTAs and layouts of A, B and C by CuTe's names; where C, A and scale factors lie.

References
----------
CuTe ``arch/mma_sm100_umma.hpp``, ``atom/mma_traits_sm100.hpp``. PTX ISA, "tcgen05.mma", "tcgen05.mma.ws".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from ..arguments import integer, one_of, text
from ..errors import LayoutError
from ..grids.grid import Grid, Picture
from ..hardware import Major
from ..layout import Layout
from ..sm90.traits import MmaTraits, Operand, Source
from .instr_descriptor import InstrDescriptor
from .kinds import MmaKind, check_choice, mma_kind
from .tmem import TmemTensor, tmem_accumulator, tmem_operand, tmem_scale_factors

ASource = Literal["smem", "tmem"]

_CUTE_KINDS: Final = {
    "f16": "F16BF16",
    "tf32": "TF32",
    "f8f6f4": "F8F6F4",
    "i8": "S8",
    "mxf8f6f4": "MXF8F6F4",
    "mxf4": "MXF4",
    "mxf4nvf4": "MXF4",
}
"""Kind -> its part of the names of CuTe's atoms."""

_KINDS: Final = {cute: kind for kind, cute in reversed(_CUTE_KINDS.items())} | {"MXF4NVF4": "mxf4"}

CPP_TYPES: Final = {
    "half_t": "f16",
    "bfloat16_t": "bf16",
    "tfloat32_t": "tf32",
    "float_e4m3_t": "e4m3",
    "float_e5m2_t": "e5m2",
    "float_e2m3_t": "e2m3",
    "float_e3m2_t": "e3m2",
    "float_e2m1_t": "e2m1",
    "int8_t": "s8",
    "uint8_t": "u8",
    "float": "f32",
    "int32_t": "s32",
    "float_ue8m0_t": "ue8m0",
    "float_ue4m3_t": "ue4m3",
}
"""C++'s names of the element types -> PTX's."""

_NAME = re.compile(
    r"SM100_MMA_(?P<kind>F16BF16|TF32|F8F6F4|S8|MXF8F6F4|MXF4NVF4|MXF4)(?P<pair>_2x1SM)?_(?P<source>SS|TS)"
    r"(?P<sparse>_SPARSE)?<(?P<arguments>[\w:,\s]*)>"
)


@dataclass(frozen=True)
class UmmaTraits(MmaTraits):
    """CuTe's ``MMA_Traits`` of one tcgen05.mma: (CTA, element) -> index, and the tensors of tensor memory.

    Parameters
    ----------
    name : str
        CuTe's name of the atom; the PTX instruction where CuTe has none, of ``.ws`` for example.
    shape_mnk : (int, int, int)
        Extents of the MMA, of both CTAs of a pair together.
    thr_id : Layout
        Index within the CTAs that take part -> CTA.
    a_layout, b_layout, c_layout : Layout
        (CTA, element) -> colexicographic index in (M, K), (N, K), (M, N): each of a pair has half of M of A and C, and
        half of N of B.
    a_dtype, b_dtype, c_dtype : str
        Element types by PTX's names.
    descriptor : InstrDescriptor
        The instruction descriptor.
    cta_group : int
        1 or 2.
    a_source : "smem" or "tmem"
        SS or TS: where A comes from. B always comes from shared memory.
    ws : bool
        ``tcgen05.mma.ws``.
    scale_vector : int or None
        Elements along K that share a scale factor; None without block scales.

    Examples
    --------
    >>> traits = umma_traits("f16", 256, 128, cta_group=2)
    >>> print(traits.name, traits.b_layout)
    SM100_MMA_F16BF16_2x1SM_SS<half_t,half_t,float,256,128,K,K> (2,(64,16)):(64,(1,128))
    >>> traits.ptx, traits.accumulator.columns
    ('tcgen05.mma.cta_group::2.kind::f16', 128)
    """

    descriptor: InstrDescriptor
    cta_group: int
    a_source: ASource
    ws: bool
    scale_vector: int | None

    def _picture_(self, *, operand: Operand | None = None) -> Grid | Picture:
        """Draw all that lies in tensor memory; or one operand, in shared memory by the CTA that has each element."""
        from ..grids.grid import Picture
        from ..sm90.pictures import traits_picture
        from .pictures import tmem_tensor_grid

        if operand is not None and self.source(operand) != "tmem":
            return traits_picture(self, operand)
        tensors = [self.accumulator] if operand in (None, "C") else []
        if self.a_source == "tmem" and operand in (None, "A") and not self.ws:
            tensors.append(self.a_in_tmem)
        if self.scale_vector is not None and operand is None:
            tensors += [self.scales_a, self.scales_b]
        return Picture(tuple(tmem_tensor_grid(tensor) for tensor in tensors), self.name)

    @property
    def kind(self) -> MmaKind:
        """Kind of the MMA."""
        return mma_kind(self.descriptor.kind)

    def source(self, operand: Operand) -> Source:
        """Return where an operand lies: shared memory for B, tensor memory for C, either for A."""
        of: dict[Operand, Source] = {"A": self.a_source, "B": "smem", "C": "tmem"}
        return of[operand]

    @property
    def a_bits(self) -> int:
        """Bits between elements of A as the MMA reads them."""
        return self.kind.element_bits(self.a_dtype)

    @property
    def b_bits(self) -> int:
        """Bits between elements of B as the MMA reads them."""
        return self.kind.element_bits(self.b_dtype)

    @property
    def c_bits(self) -> int:
        """Width of an accumulator."""
        return 16 if self.c_dtype == "f16" else 32

    @property
    def ptx(self) -> str:
        """PTX instruction, up to the operands."""
        sparse, ws = (".sp" if self.descriptor.sparse else "", ".ws" if self.ws else "")
        scaled = ""
        if self.scale_vector is not None:
            scaled = f".block_scale.block{self.scale_vector}"
        return f"tcgen05.mma{ws}{sparse}.cta_group::{self.cta_group}.kind::{self.kind.name}{scaled}"

    @property
    def accumulator(self) -> TmemTensor:
        """C and D in the tensor memory of each CTA."""
        m, n, _ = self.shape_mnk
        return tmem_accumulator(m, n, bits=self.c_bits, cta_group=self.cta_group, ws=self.ws)

    @property
    def a_in_tmem(self) -> TmemTensor:
        """A in the tensor memory of each CTA, of TS atoms.

        Raises
        ------
        LayoutError
            If A comes from shared memory, or the MMA is ``.ws``, of which no source tells the place.
        """
        if self.a_source != "tmem":
            raise LayoutError("a_in_tmem", (self.name,), "A comes from shared memory", 'ask for a_source="tmem"')
        if self.ws:
            raise LayoutError("a_in_tmem", (self.name,), "the place of A of tcgen05.mma.ws is not known")
        m, _, k = self.shape_mnk
        return tmem_operand(m, k, bits=self.a_bits, cta_group=self.cta_group)

    @property
    def scales_a(self) -> TmemTensor:
        """Scale factors of A in the tensor memory of each CTA, of its rows.

        Raises
        ------
        LayoutError
            If the kind has none.
        """
        rows = self.shape_mnk[0] // self.cta_group
        return self._scales(rows, halves=False)

    @property
    def scales_b(self) -> TmemTensor:
        """Scale factors of B in the tensor memory of each CTA, of all of N, which is taken up to 128 rows.

        Raises
        ------
        LayoutError
            If the kind has none.
        """
        m, n, _ = self.shape_mnk
        return self._scales(-(-n // 128) * 128, halves=m // self.cta_group == 64)

    def _scales(self, rows: int, *, halves: bool) -> TmemTensor:
        if self.scale_vector is None:
            raise LayoutError("UmmaTraits", (self.name,), f"kind::{self.kind.name} has no scale factors")
        factors = self.shape_mnk[2] // (2 if self.descriptor.sparse else 1) // self.scale_vector
        whole = factors if factors in (1, 2) else -(-factors // 4) * 4
        vector = self.scale_vector * (2 if self.descriptor.sparse else 1)
        return tmem_scale_factors(rows, whole, vector=vector, halves=halves)


def umma_traits(
    kind: str,
    m: int,
    n: int,
    *,
    a_dtype: str | None = None,
    b_dtype: str | None = None,
    d_dtype: str | None = None,
    a_major: Major = "K",
    b_major: Major = "K",
    cta_group: int = 1,
    a_source: ASource = "smem",
    ws: bool = False,
    sparse: bool = False,
    scale_dtype: str | None = None,
    scale_vector: int | None = None,
    k: int | None = None,
) -> UmmaTraits:
    """Return the traits of a tcgen05.mma.

    Parameters
    ----------
    kind, m, n, a_dtype, b_dtype, d_dtype, a_major, b_major, sparse, scale_dtype, k
        As of `InstrDescriptor`.
    cta_group : int
        1 or 2.
    a_source : "smem" or "tmem"
        SS or TS; A from tensor memory is K-major.
    ws : bool
        ``tcgen05.mma.ws``.
    scale_vector : int, optional
        16 or 32. Default: the kind's only one, 16 of ``mxf4nvf4`` with ue4m3.

    Raises
    ------
    LayoutError
        If there is no such MMA.

    Examples
    --------
    >>> traits = umma_traits("mxf4nvf4", 128, 64)
    >>> print(traits.name, traits.ptx)
    SM100_MMA_MXF4_SS<float_e2m1_t,float_e2m1_t,float,float_ue4m3_t,128,64,16,K,K> \
tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16
    >>> print(traits.scales_b.layout)
    (((32,4),4),(16,4)):(((262144,4),8388608),(0,1))
    """
    operation, operands = "umma_traits", (kind, m, n)
    found = mma_kind(kind)
    descriptor = InstrDescriptor(
        found.name,
        m,
        n,
        a_dtype=a_dtype,
        b_dtype=b_dtype,
        d_dtype=d_dtype,
        a_major=a_major,
        b_major=b_major,
        sparse=sparse,
        scale_dtype=scale_dtype,
        k=k,
    )
    vector = _vector(found, descriptor.scale_dtype, scale_vector)
    descriptor.check(cta_group=cta_group, ws=ws, scale_vector=vector)
    a_source = one_of(operation, operands, "a_source", a_source, ("smem", "tmem"))
    if a_source == "tmem" and descriptor.a_major != "K":
        raise LayoutError(operation, operands, "A from tensor memory must be K-major, got MN-major")
    shape = (descriptor.m, descriptor.n, descriptor.k or found.k)
    return UmmaTraits(
        _name(descriptor, cta_group, a_source, ws, vector),
        shape,
        Layout(cta_group),
        _shared(shape[0], shape[2], cta_group),
        _shared(shape[1], shape[2], cta_group),
        _shared(shape[0], shape[1], cta_group),
        str(descriptor.a_dtype),
        str(descriptor.b_dtype),
        str(descriptor.d_dtype),
        descriptor,
        cta_group,
        a_source,
        ws,
        vector,
    )


def umma_traits_named(name: str) -> UmmaTraits:
    """Return the traits of a CuTe atom by its C++ type.

    Parameters
    ----------
    name : str
        For example ``"SM100_MMA_F16BF16_SS<half_t,half_t,float,128,256,UMMA::Major::K,UMMA::Major::K>"``; the majors
        also as ``K`` and ``MN``.

    Raises
    ------
    LayoutError
        If there is no such atom.

    Examples
    --------
    >>> umma_traits_named("SM100_MMA_TF32_2x1SM_SS<tfloat32_t,tfloat32_t,float,256,64,MN,K>").shape_mnk
    (256, 64, 8)
    """
    operation = "traits_named"
    parts = _NAME.fullmatch(text(operation, "name", name).strip())
    if parts is None:
        raise LayoutError(
            operation, (name,), "not of the form SM100_MMA_F16BF16_SS<A,B,C,M,N,K,K>, with _2x1SM for a pair of CTAs"
        )
    arguments = [argument.strip().split("::")[-1] for argument in parts["arguments"].split(",")]
    scaled, fp4 = parts["kind"].startswith("MX"), parts["kind"].startswith("MXF4")
    wanted = ["A", "B", "C", *(["scale"] if scaled else []), "M", "N", *(["vector"] if fp4 else []), "a", "b"]
    if len(arguments) != len(wanted):
        raise LayoutError(operation, (name,), f"needs {len(wanted)} template arguments, got {len(arguments)}")
    given = dict(zip(wanted, arguments, strict=True))
    types = {key: CPP_TYPES.get(given[key], "") for key in ("A", "B", "C", "scale") if key in given}
    for key, dtype in types.items():
        if not dtype:
            raise LayoutError(operation, (name,), f"{key} must be one of {', '.join(CPP_TYPES)}, got {given[key]}")
    for number in ("M", "N", "vector"):
        if number in given and not given[number].isdigit():
            raise LayoutError(operation, (name,), f"{number} must be a number, got {given[number]!r}")
    vector = int(given["vector"]) if fp4 else None
    if vector is not None and parts["sparse"]:
        vector //= 2
    kind = _KINDS[parts["kind"]]
    if kind == "mxf4" and vector == 16:
        kind = "mxf4nvf4"
    traits = umma_traits(
        kind,
        int(given["M"]),
        int(given["N"]),
        a_dtype=types["A"],
        b_dtype=types["B"],
        d_dtype=types["C"],
        a_major=one_of(operation, (name,), "the major of A", given["a"], ("K", "MN")),
        b_major=one_of(operation, (name,), "the major of B", given["b"], ("K", "MN")),
        cta_group=2 if parts["pair"] else 1,
        a_source="smem" if parts["source"] == "SS" else "tmem",
        sparse=bool(parts["sparse"]),
        scale_dtype=types.get("scale"),
        scale_vector=vector,
    )
    if not traits.name.startswith("SM100_"):
        condition = "CuTe has no such atom: A of block-scaled and of sparse MMAs comes from shared memory"
        raise LayoutError(operation, (name,), condition, "take umma_traits for the instruction")
    return traits


def _vector(kind: MmaKind, scale_dtype: str | None, scale_vector: int | None) -> int | None:
    if not kind.block_scaled:
        if scale_vector is not None:
            raise LayoutError(
                "umma_traits", (kind.name,), f"kind::{kind.name} has no scale factors, got {scale_vector}"
            )
        return None
    choices = sorted(set(kind.scale_vectors.values()))
    if scale_vector is None:
        return choices[0] if scale_dtype == "ue4m3" else choices[-1]
    check_choice(
        "umma_traits", (kind.name,), "scale_vector", integer("umma_traits", "scale_vector", scale_vector), choices
    )
    if scale_dtype == "ue4m3" and scale_vector != 16:
        raise LayoutError(
            "umma_traits", (kind.name,), f"ue4m3 scales 16 elements each, got scale_vector {scale_vector}"
        )
    return scale_vector


def _shared(rows: int, columns: int, ctas: int) -> Layout:
    """Return (CTA, element) -> index of an operand whose rows the CTAs share."""
    each = rows // ctas
    return Layout((ctas, (each, columns)), (each if ctas > 1 else 0, (1, rows)))


def _name(descriptor: InstrDescriptor, cta_group: int, a_source: str, ws: bool, vector: int | None) -> str:
    kind = mma_kind(descriptor.kind)
    source = "TS" if a_source == "tmem" else "SS"
    if ws or (source == "TS" and (kind.block_scaled or descriptor.sparse)) or descriptor.k == 96:
        shape = f"m{descriptor.m}n{descriptor.n}k{descriptor.k}"
        return f"tcgen05.mma{'.ws' if ws else ''}.cta_group::{cta_group}.kind::{kind.name}, {shape}, A in {a_source}"
    cpp = {ptx: name for name, ptx in CPP_TYPES.items()}
    types = [descriptor.a_dtype, descriptor.b_dtype, descriptor.d_dtype]
    scales = [descriptor.scale_dtype] if kind.block_scaled else []
    arguments = [
        *(cpp[str(dtype)] for dtype in (*types, *scales)),
        str(descriptor.m),
        str(descriptor.n),
        *([str(vector * (2 if descriptor.sparse else 1))] if kind.packs_fp4 and vector else []),
        descriptor.a_major,
        descriptor.b_major,
    ]
    cute = _CUTE_KINDS[kind.name] + ("NVF4" if kind.packs_fp4 and descriptor.sparse else "")
    form = f"{'_2x1SM' if cta_group == 2 else ''}_{source}{'_SPARSE' if descriptor.sparse else ''}"
    return f"SM100_MMA_{cute}{form}<{','.join(arguments)}>"
