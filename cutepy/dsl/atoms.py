"""Conversion of the DSL's atoms, tiled MMAs and tiled copies from and to values of `cutepy.layouts`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutepy.dsl.version import require
from cutepy.layouts import Layout, LayoutError, size, sm80, sm90, to_text
from cutepy.layouts.sm90.arch import DTYPE_BITS
from cutepy.layouts.sm90.gmma import check_major
from cutepy.runtime.program import HOPPER

Read = Callable[[Any], Any]

_DTYPES = {
    "Float16": "f16", "BFloat16": "bf16", "TFloat32": "tf32", "Float32": "f32", "Float64": "f64", "Int8": "s8",
    "Uint8": "u8", "Int32": "s32", "Float8E4M3FN": "e4m3", "Float8E5M2": "e5m2",
}  # fmt: skip
"""Element types: the DSL's -> PTX's names."""


_MULTIPLIED = {ptx: dsl for dsl, ptx in _DTYPES.items() if ptx in ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")}
"""Operand types of wgmma: PTX's names -> the DSL's."""


def read_mma_atom(atom: Any, read: Read) -> sm90.MmaTraits:  # noqa: ANN401 - MmaAtom
    """Convert an MMA atom of the DSL; `read` converts layouts.

    An atom that `sm80` or `sm90` knows, with the same layouts, becomes theirs; another has its operation's name.
    """
    m, n, k = map(int, atom.shape_mnk)
    shape = (m, n, k)
    thr_id, of_a, of_b, of_c = (
        read(layout) for layout in (atom.thr_id, atom.tv_layout_A, atom.tv_layout_B, atom.tv_layout_C)
    )
    a, b, c = _dtypes(atom.op)
    for known in _candidates(atom.op, shape, a, b, c):
        found = (known.thr_id, known.a_layout, known.b_layout, known.c_layout)
        if all(map(_same_function, found, (thr_id, of_a, of_b, of_c))):
            return known
    name = type(atom.op).__name__.removesuffix("Op")
    return sm90.MmaTraits(name, shape, thr_id, of_a, of_b, of_c, a, b, c)


def read_tiled_mma(mma: Any, read: Read) -> sm90.TiledMMA:  # noqa: ANN401 - TiledMma
    """Convert a tiled MMA of the DSL.

    Raises
    ------
    ValueError
        If its threads are no layout of whole atoms.
    """
    traits = read_mma_atom(mma, read)
    m, n, k = (_extent(read(tiler)) for tiler in mma.permutation_mnk)
    return sm90.TiledMMA.of_threads(traits, read(mma.thr_layout_vmnk), (m, n, k))


def to_tiled_mma(tiling: sm90.TiledMMA, a_major: sm90.Major = "K", b_major: sm90.Major = "K") -> Any:  # noqa: ANN401
    """Build the DSL's form of wgmma atoms tiled over M, N and K, inside a traced function.

    It accumulates in fp32, and products of integers in s32, which saturates.

    Parameters
    ----------
    tiling : sm90.TiledMMA
        Of an atom of `sm90.wgmma_traits`, without a permutation.
    a_major, b_major : "K" or "MN", in any case
        Majors of the operands in shared memory; an A in registers is "K".

    Raises
    ------
    ValueError
        If the atom is none of wgmma's, or sums in fp16 or in integers that wrap, which the DSL has no operation for; it
        does not take these majors, the tiling is permuted, or the function is compiled for another GPU than Hopper.
    """
    traits = tiling.traits
    dsl = require("cutlass.cutlass_dsl", "CuTeDSL._get_dsl", "CuTeDSL.get_arch_enum").CuTeDSL._get_dsl()
    if (arch := dsl.get_arch_enum().name) != HOPPER:
        raise ValueError(f"{traits.name} is for Hopper ({HOPPER}), and this is compiled for {arch}")
    saturates = isinstance(traits, sm90.WgmmaTraits) and traits.saturate
    if not isinstance(traits, sm90.WgmmaTraits) or traits.c_dtype != ("s32" if saturates else "f32"):
        raise ValueError(f"to_tiled_mma takes wgmma atoms that sum in f32, or in s32 and saturate, got {traits.name}")
    a_major, b_major = (check_major("to_tiled_mma", (traits.name,), major) for major in (a_major, b_major))
    if a_major not in traits.a_majors or b_major not in traits.b_majors:
        raise ValueError(
            f"{traits.name} takes A {' or '.join(traits.a_majors)}-major and B {' or '.join(traits.b_majors)}-major, "
            f"got {a_major} and {b_major}; only 16-bit operands in shared memory may be MN-major"
        )
    if tiling.permutation_mnk != (None, None, None):
        raise ValueError(f"to_tiled_mma takes tilings without permutation, got {tiling}")
    cutlass = require("cutlass", "Float32", "Int32")
    cute = require("cutlass.cute", "make_tiled_mma", "make_mma_atom")
    nvgpu = require("cutlass.cute.nvgpu", "OperandMajorMode", "warpgroup")
    a, b = (getattr(cutlass, _MULTIPLIED[dtype]) for dtype in (traits.a_dtype, traits.b_dtype))
    source = getattr(nvgpu.warpgroup.OperandSource, {"smem": "SMEM", "rmem": "RMEM"}[traits.a_source])
    majors = (getattr(nvgpu.OperandMajorMode, major) for major in (a_major, b_major))
    if a.width == 16:
        op = nvgpu.warpgroup.MmaF16BF16Op(a, cutlass.Float32, traits.shape_mnk, source, *majors)
    elif a.width == 32:
        from cutepy.dsl.tf32 import MmaTF32Op

        op = MmaTF32Op(traits.shape_mnk, source, *majors)
    elif traits.c_dtype == "s32":
        op = nvgpu.warpgroup.MmaI8Op(a, b, cutlass.Int32, traits.shape_mnk, source, *majors)
    else:
        op = nvgpu.warpgroup.MmaF8Op(a, b, cutlass.Float32, traits.shape_mnk, source, *majors)
    atoms = tiling.atom_layout_mnk
    return cute.make_tiled_mma(cute.make_mma_atom(op), cute.make_layout(atoms.shape, stride=atoms.stride))


def a_source(mma: Any) -> str:  # noqa: ANN401 - TiledMma of wgmma
    """Return the source of A in wgmma atoms: "smem" or "rmem"."""
    return {"SMEM": "smem", "RMEM": "rmem"}[mma.op.a_src.name]


def operand_types(mma: Any) -> tuple[Any, Any]:  # noqa: ANN401 - TiledMma of wgmma
    """Return the DSL's element types of A and B of wgmma atoms, inside a traced function."""
    cutlass = require("cutlass", "Float32", "Int32")
    a, b, _ = _dtypes(mma.op)
    return getattr(cutlass, _MULTIPLIED[a]), getattr(cutlass, _MULTIPLIED[b])


def operand_majors(mma: Any) -> tuple[str, str]:  # noqa: ANN401 - TiledMma of wgmma
    """Return the majors of A and B in wgmma atoms: "K" or "MN" each."""
    return mma.op.a_major_mode.name, mma.op.b_major_mode.name


def read_copy_atom(atom: Any, read: Read) -> sm90.CopyAtom:  # noqa: ANN401 - CopyAtom
    """Convert a copy atom of the DSL; one that `sm80` or `sm90` knows, with the same layouts, gets C++'s name."""
    bits = int(atom.value_type.width)
    source, destination, thr_id = (read(x) for x in (atom.layout_src_tv, atom.layout_dst_tv, atom.thr_id))
    operation = type(atom.op).__name__.removesuffix("Op")
    for known in _known_copies(atom.op, operation, bits * size(source, 1)):
        try:
            made = sm90.make_copy_atom(known, bits)
        except LayoutError:
            continue
        if _same_function(made.src_layout, source) and _same_function(made.dst_layout, destination):
            return made
    reference = destination if operation.startswith("LdMatrix") else source
    return sm90.CopyAtom(operation, bits, thr_id, source, destination, reference)


def read_tiled_copy(copy: Any, read: Read) -> sm90.TiledCopy:  # noqa: ANN401 - TiledCopy
    """Convert a tiled copy of the DSL.

    Raises
    ------
    ValueError
        If it gives threads other elements than CuTe's rules do: an operation whose registers' side is unknown.
    """
    atom = read_copy_atom(copy, read)
    tiler = tuple(_extent(read(part)) for part in copy.tiler_mn)
    found = sm90.TiledCopy(atom, read(copy.layout_tv_tiled), tiler)
    sides = (read(copy.layout_src_tv_tiled), read(copy.layout_dst_tv_tiled))
    if not all(map(_same_function, (found.get_layoutS_TV(), found.get_layoutD_TV()), sides)):
        raise ValueError(f"from_cute: {found} reads and writes other elements than the DSL's, {to_text(sides)}")
    return found


def _dtypes(operation: Any) -> tuple[str, str, str]:  # noqa: ANN401 - the DSL's Op
    """Return the element types of A, B and the accumulator, by PTX's names where they are known."""
    if type(operation).__name__ == "MmaTF32Op":
        return "tf32", "tf32", "f32"

    def of(*names: str) -> str:
        element = next((getattr(operation, name) for name in names if hasattr(operation, name)), None)
        called = getattr(element, "__name__", "unknown")
        return _DTYPES.get(called, called)

    return (
        of("a_dtype", "ab_dtype", "abacc_dtype"),
        of("b_dtype", "ab_dtype", "abacc_dtype"),
        of("acc_dtype", "abacc_dtype"),
    )


def _candidates(operation: Any, shape: tuple[int, ...], a: str, b: str, c: str) -> list[sm90.MmaTraits]:  # noqa: ANN401
    """List the names of atoms with these properties."""
    extents = "x".join(map(str, shape))
    if hasattr(operation, "a_src"):
        source = "SS" if operation.a_src.name == "SMEM" else "RS"
        suffix = "" if DTYPE_BITS.get(a) == 16 else "_TN_SATURATE" if c == "s32" else "_TN"
        name = f"SM90_{extents}_{c}{a}{b}_{source}".upper().replace("X", "x") + suffix
        try:
            return [sm90.wgmma_traits(name)]
        except LayoutError:
            return []
    called = f"_{extents}_{(c + a + b + c).upper()}_TN"
    return [sm80.mma_traits(name) for name in sm80.mma_names() if name.endswith(called)]


def _known_copies(operation: Any, called: str, bits: int) -> list[sm90.CopyTraits]:  # noqa: ANN401
    """List the copy instructions with these properties; `bits` are those of a source thread."""
    matrices = {"LdMatrix8x8x16b": sm90.ldmatrix_traits, "StMatrix8x8x16b": sm90.stmatrix_traits}
    try:
        if called in matrices:
            return [matrices[called](operation.num_matrices, transpose=operation.transpose)]
        if called == "CopyUniversal":
            return [sm90.universal_copy(bits)]
        if called == "CopyG2S":
            cache = "global" if operation.cache_mode.name == "GLOBAL" else "always"
            return [sm80.cp_async(bits, cache=cache)]  # type: ignore[arg-type]
    except LayoutError:
        pass  # an instruction of a width that PTX lacks, which the DSL splits
    return []


def _extent(tiler: Any) -> Any:  # noqa: ANN401 - Layout, int or None
    """Return an extent as an int: the DSL writes it ``32:1``."""
    if isinstance(tiler, Layout) and type(tiler.shape) is int and (tiler.stride == 1 or tiler.shape == 1):
        return tiler.shape
    return tiler


def _same_function(first: Layout, second: Layout) -> bool:
    """Return whether two (thread, value) layouts agree as functions: the DSL nests and coalesces modes otherwise."""
    if first == second:
        return True
    modes = range(len(first)) if isinstance(first.shape, tuple) else ()
    if first.size() != second.size() or any(size(first, mode) != size(second, mode) for mode in modes):
        return False
    return all(first(i) == second(i) for i in range(first.size()))
