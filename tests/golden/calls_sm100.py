"""The public call that each reference vector of Blackwell pins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutepy.layouts import parse, sm100, tile_to_shape, to_text
from cutepy.layouts.sm100.umma import CPP_TYPES

_BITS = {"half_t": 16, "bfloat16_t": 16, "int8_t": 8, "uint8_t": 8, "float_e4m3_t": 8, "tfloat32_t": 32, "float": 32}
_BITS |= {"uint32_t": 32, "int32_t": 32, "float_e2m1_t": 4, "float_ue8m0_t": 8}


def _atom(major: str, mode: str, kind: str, bits: int) -> str:
    return to_text(sm100.umma_layout_atom(major, mode, bits, pointer_swizzle=True))


def _desc(
    major: str, mode: str, kind: str, shape: str, mn: int, k: int, mn_block: int, k_block: int, base: str
) -> dict[str, Any]:
    """The descriptor of a tile's block, and the addresses at which it makes the hardware read 16 bytes each."""
    bits = _BITS[kind]
    smem = tile_to_shape(sm100.umma_layout_atom(major, mode, bits, pointer_swizzle=True), parse(shape))
    descriptors = sm100.SmemDescriptorIterator(
        smem, major=major, bits=bits, mma_shape=(mn, k), base_address=int(base, 16)
    )
    made = descriptors[mn_block, k_block]
    addresses = made.element_addresses()
    rows, columns = (1, 128 // bits) if major == "K" else (128 // bits, 1)
    units = [addresses[i][j] for i in range(0, mn, rows) for j in range(0, k, columns)]
    return {"desc": f"0x{int(made):016x}", "units": units}


def _frg(kind: str, storage: str, ctas: int, mode: str, rows: int, columns: int) -> str:
    if mode == "Interleaved":
        bits = _BITS[kind]
        return to_text(sm100.tmem_accumulator(rows * ctas, columns, bits=bits, cta_group=ctas).layout)
    return to_text(sm100.tmem_operand(rows * ctas, columns, bits=_BITS[kind], cta_group=ctas).layout)


def _frg_ws(kind: str, storage: str, rows: int, columns: int) -> str:
    return to_text(sm100.tmem_accumulator(rows, columns, bits=_BITS[kind], ws=True).layout)


def _sf_frg(kind: str, vector: int, ctas: int, is_a: str, mode: str, rows: int, count: int) -> str:
    return to_text(sm100.tmem_scale_factors(rows, count, vector=vector, halves=mode.endswith("2by2")).layout)


def _e_frg(kind: str, rows: int, columns: int) -> str:
    """CuTe counts half bits where A is fp4."""
    layout = sm100.tmem_metadata(_BITS[kind]).layout
    if kind == "float_e2m1_t":
        (m, (two, half)), (lane, (none, one)) = layout.shape, layout.stride
        assert (two, none) == (2, 0)
        return f"({m},{two * half}):({2 * lane},{one})"
    return to_text(layout)


def copy_traits(name: str) -> Any:
    """Traits by CuTe's name: of a load, a store, or a copy from shared memory."""
    made: Any = sm100.traits_named(name)
    assert made.name == name
    return made


def _copy_traits(name: str) -> dict[str, str]:
    made = copy_traits(name)
    fields = {"ThrID": made.thr_id, "ValID": made.val_id, "SrcLayout": made.src_layout}
    fields |= {"DstLayout": made.dst_layout, "RefLayout": made.ref_layout}
    return {key: to_text(value) for key, value in fields.items()}


def _ptx(kind: str) -> str:
    """PTX's name of a C++ type; those of narrow elements in shared memory have longer ones."""
    plain = kind.rpartition("::")[2].replace("_unpacksmem", "")
    return CPP_TYPES[plain]


def _instr_desc(a, b, c, m, n, a_major, b_major, a_neg, b_neg, saturate, sparse, shift) -> int:
    a, b, d = _ptx(a), _ptx(b), _ptx(c)
    kind = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "s8": "i8", "u8": "i8"}.get(a, "f8f6f4")
    return _word(
        kind, m, n, a_dtype=a, b_dtype=b, d_dtype=d, a_major=a_major, b_major=b_major, a_negate=bool(a_neg),
        b_negate=bool(b_neg), saturate=bool(saturate), sparse=bool(sparse), max_shift=(0, 8, 16, 32)[shift],
    )  # fmt: skip


def _instr_desc_scaled(a, b, scale, m, n, a_major, b_major, a_neg, b_neg, sparse) -> int:
    kind = "mxf4nvf4" if a == "float_e2m1_t" else "mxf8f6f4"
    return _word(
        kind, m, n, a_dtype=_ptx(a), b_dtype=_ptx(b), scale_dtype=_ptx(scale), a_major=a_major, b_major=b_major,
        a_negate=bool(a_neg), b_negate=bool(b_neg), sparse=bool(sparse),
    )  # fmt: skip


def _word(kind: str, m: int, n: int, **said: Any) -> int:
    return int(sm100.InstrDescriptor(kind, m, n, **said))


def _traits(name: str) -> dict[str, Any]:
    made = sm100.traits_named(name)
    return {
        "idesc": int(made.descriptor),
        "Shape_MNK": to_text(made.shape_mnk),
        "ThrID": to_text(made.thr_id),
        "ALayout": to_text(made.a_layout),
        "BLayout": to_text(made.b_layout),
        "CLayout": to_text(made.c_layout),
    }


def _tiled(name: str, op: str, *operands: Any) -> Any:
    kind, _, ctas, _, rows, columns = operands
    tensor = sm100.tmem_accumulator(rows * ctas, columns, bits=_BITS[kind], cta_group=ctas)
    return sm100.make_tmem_copy(copy_traits(name), tensor)


CALLS: dict[str, Callable[..., Any]] = {
    "umma_atom": _atom,
    "make_umma_desc": _desc,
    "tmem_frg": _frg,
    "tmem_frg_ws": _frg_ws,
    "tmem_sf_frg": _sf_frg,
    "tmem_e_frg": _e_frg,
    "tmem_copy_traits": _copy_traits,
    "umma_instr_desc": _instr_desc,
    "umma_instr_desc_scaled": _instr_desc_scaled,
    "umma_traits": _traits,
    "make_tmem_copy_TV": lambda *operands: to_text(_tiled(*operands).layout_tv),
    "make_tmem_copy_tiler": lambda *operands: to_text(_tiled(*operands).tiler_mn),
}
"""Operation of a vector -> its answer by `cutepy.layouts.sm100`."""
