"""C++ statements that answer questions about Blackwell: descriptors, tensor memory, its copies, MMA atoms."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.notation import to_cpp

_TYPES = {8: "uint8_t", 16: "half_t", 32: "float"}
_FRAGMENTS = ("tmem_frg", "tmem_frg_ws", "tmem_sf_frg", "tmem_e_frg")
_STATIC = ("umma_atom", *_FRAGMENTS, "make_tmem_copy_TV", "make_tmem_copy_tiler")
_RUN = ("make_umma_desc", "tmem_copy_traits", "umma_instr_desc", "umma_instr_desc_scaled", "umma_traits")


def knows(op: str) -> bool:
    """Tell whether an operation is one of Blackwell's."""
    return op in _STATIC or op in _RUN


def expression(op: str, operands: Sequence[str]) -> str | None:
    """The expression whose static type is the answer, or None where a program must run."""
    if op == "umma_atom":
        return f"UMMA::Layout_{operands[0]}_{operands[1]}_Atom<{operands[2]}>{{}}"
    if op in _FRAGMENTS:
        return f"layout<0>({_fragment(op, operands)}.layout())"
    if op in ("make_tmem_copy_TV", "make_tmem_copy_tiler"):
        fragment = _fragment(operands[1], operands[2:])
        tensor = f"make_tensor(make_tmem_ptr<{operands[2]}>(), layout<0>({fragment}.layout()))"
        copy = f"make_tmem_copy({_operation(operands[0])}{{}}, {tensor})"
        return f"typename decltype({copy})::{'TiledLayout_TV' if op.endswith('TV') else 'Tiler_MN'}{{}}"
    return None


def statement(index: int, op: str, operands: Sequence[str]) -> str:
    """The statement that prints the answer of a question that needs a program."""
    if op == "make_umma_desc":
        major, swizzle, kind, shape, mn, k, mn_block, k_block, base = operands
        atom = f"UMMA::Layout_{major}_{swizzle}_Atom<{kind}>{{}}"
        smem = f"tile_to_shape({atom}, {to_cpp(shape)})"
        tile = f"Int<{mn}>{{}}, Int<{k}>{{}}"
        where = f"{mn_block}, {k_block}, {base}"
        return f"emit_umma_descriptor<{kind}, UMMA::Major::{major}>({index}, {smem}, {tile}, {where});"
    if op == "tmem_copy_traits":
        return f"emit_copy_traits<{_operation(operands[0])}>({index});"
    if op == "umma_instr_desc":
        a, b, c, m, n, a_major, b_major, a_neg, b_neg, saturate, sparse, shift = operands
        majors = f"UMMA::Major::{a_major}, UMMA::Major::{b_major}, UMMA::ScaleIn({a_neg}), UMMA::ScaleIn({b_neg})"
        flags = f"UMMA::Saturate({saturate}), {sparse}, UMMA::MaxShift({shift})"
        return f"emit({index}, uint32_t(UMMA::make_instr_desc<{a}, {b}, {c}, {m}, {n}, {majors}, {flags}>()));"
    if op == "umma_instr_desc_scaled":
        a, b, scale, m, n, a_major, b_major, a_neg, b_neg, sparse = operands
        majors = f"UMMA::Major::{a_major}, UMMA::Major::{b_major}, UMMA::ScaleIn({a_neg}), UMMA::ScaleIn({b_neg})"
        made = f"make_instr_desc_block_scaled<{a}, {b}, float, {scale}, {m}, {n}, {majors}, {sparse}>()"
        return f"emit({index}, uint32_t(UMMA::{made}));"
    if op == "umma_traits":
        return f"emit_umma_traits<{_traits(operands[0])}>({index});"
    raise ValueError(f"the oracle knows no operation {op!r}")


def _fragment(op: str, operands: Sequence[str]) -> str:
    """The tensor of tensor memory that CuTe's flag makes for one MMA."""
    if op == "tmem_sf_frg":
        kind, vector, ctas, is_a, mode, rows, count = operands
        factors = f"make_shape(Int<{vector}>{{}}, Int<{count}>{{}})"
        shape = f"make_shape(make_shape(Int<{rows}>{{}}, {factors}), _1{{}}, _1{{}})"
        return f"UMMA::tmem_sf_frg<{kind}, {vector}, {ctas}, {is_a}, UMMA::TmemAllocMode::{mode}>::make({shape})"
    if op == "tmem_e_frg":
        kind, rows, columns = operands
        flag = f"UMMA::tmem_e_frg<{kind}>"
    elif op == "tmem_frg_ws":
        kind, storage, rows, columns = operands
        flag = f"UMMA::tmem_frg_ws<{kind}, {storage}, 1>"
    else:
        kind, storage, ctas, mode, rows, columns = operands
        flag = f"UMMA::tmem_frg<{kind}, {storage}, {ctas}, UMMA::TmemAllocMode::{mode}>"
    return f"{flag}::make(make_shape(make_shape(Int<{rows}>{{}}, Int<{columns}>{{}}), _1{{}}, _1{{}}))"


def _operation(name: str) -> str:
    """C++ type of a copy of tensor memory."""
    room = {"LOAD": "LOAD", "STOR": "STORE"}.get(name.removeprefix("SM100_TMEM_")[:4], "UTCCP")
    return f"SM100::TMEM::{room}::{name}"


def _traits(name: str) -> str:
    """C++ type of an atom's traits; CuTe passes the arguments of two atoms beside the operation."""
    operation, _, rest = name.partition("<")
    arguments = rest.rstrip(">").split(",")
    majors = [f"UMMA::Major::{major}" for major in arguments[-2:]]
    if operation in ("SM100_MMA_F8F6F4_SS", "SM100_MMA_F8F6F4_2x1SM_SS"):
        a, b, c, m, n = arguments[:5]
        constants = ", ".join(f"cute::integral_constant<UMMA::Major, {major}>" for major in majors)
        one = "cute::integral_constant<UMMA::ScaleIn, UMMA::ScaleIn::One>"
        return f"MMA_Traits<{operation}, {a}, {b}, {c}, cute::C<{m}>, cute::C<{n}>, {constants}, {one}, {one}>"
    return f"MMA_Traits<{operation}<{','.join([*arguments[:-2], *majors])}>>"
