"""C++ statements of the reference vectors: one line for each kind of case, `emit...(index, expression);`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.oracle import statements_sm100
from tests.oracle.notation import integers, to_cpp

Operand = int | str

# Operations that take integers as template arguments, after the layout.
_TEMPLATE_INTEGERS = {"get", "take", "select", "group"}
_METHODS = {"get_1d_coord", "get_hier_coord", "get_flat_coord"}
_ORDERS = {"make_layout_left": "LayoutLeft", "make_layout_right": "LayoutRight"}
COPY_OPERATIONS = {
    "TiledLayout_TV": "typename decltype({copy})::TiledLayout_TV{{}}",
    "Tiler_MN": "typename decltype({copy})::Tiler_MN{{}}",
    "get_layoutS_TV": "{copy}.get_layoutS_TV()",
    "get_layoutD_TV": "{copy}.get_layoutD_TV()",
    "tidfrg_S": "{copy}.tidfrg_S({tensor})",
    "tidfrg_D": "{copy}.tidfrg_D({tensor})",
    "retile": "{copy}.retile({tensor})",
}
_VALUE_TYPES = {8: "uint8_t", 16: "half_t", 32: "float", 64: "double", 128: "cute::uint128_t"}
_MMA_VALUES = {
    "thr_layout_vmnk": "{mma}.get_thr_layout_vmnk()",
    "tile_shape": "tile_shape({mma})",
    "thr_size": "size({mma})",
    "get_layoutA_TV": "{mma}.get_layoutA_TV()",
    "get_layoutB_TV": "{mma}.get_layoutB_TV()",
    "get_layoutC_TV": "{mma}.get_layoutC_TV()",
}


def statement(index: int, op: str, operands: Sequence[Operand]) -> str:
    """Write the C++ statement that prints the answer of one case.

    Parameters
    ----------
    index : int
        Number printed in front of the answer.
    op : str
        Operation as the reference vectors name it, `upcast<2>` and the like included.
    operands : sequence of int or str
        Operands in the vectors' notation.
    """
    plain = expression(op, operands)
    if plain is not None:
        return f"emit({index}, {plain});"
    if statements_sm100.knows(op):
        return statements_sm100.statement(index, op, [str(x) for x in operands])
    if op == "mma_traits":
        return f"emit_traits<{atom_type(str(operands[0]))}>({index});"
    if op == "eval":
        return f"auto const f = {to_cpp(operands[0])}; emit_values({index}, f, int(size(f)));"
    if op == "swizzle_apply":
        bits, base, shift = integers(operands[0])
        return f"emit_values({index}, {to_cpp(operands[0])}, {1 << (bits + base + abs(shift))});"
    if re.fullmatch(r"partition_[ABC]", op):
        tensor = f"make_tensor(origin(), {to_cpp(operands[2])})"
        return f"emit_partition({index}, {tiled_mma(operands)}.get_slice({operands[3]}).{op}({tensor}), origin());"
    return _descriptor(index, op, [str(x) for x in operands])


def expression(op: str, operands: Sequence[Operand]) -> str | None:
    """The C++ expression whose static type is the answer, or None where a program must run to know it."""
    if statements_sm100.knows(op):
        return statements_sm100.expression(op, [str(x) for x in operands])
    if op in ("eval", "swizzle_apply", "mma_traits", "make_gmma_desc", "desc_iterator_layout"):
        return None
    if op in _MMA_VALUES:
        return _MMA_VALUES[op].format(mma=tiled_mma(operands))
    if op in COPY_OPERATIONS:
        tensor = to_cpp(operands[6]) if len(operands) > 6 else ""
        return COPY_OPERATIONS[op].format(copy=tiled_copy(operands), tensor=tensor)
    kind, _, operand = op.rpartition("_")
    if operand in ("A", "B", "C"):
        if kind == "partition":
            return None
        mma, layout = tiled_mma(operands), to_cpp(operands[2])
        if kind == "thrfrg":
            return f"{mma}.{op}({layout})"
        call = f"{kind}_{operand}" if kind == "partition_shape" else f"partition_fragment_{operand}"
        return f"{call}({mma}, shape({layout}))" + ("" if kind == "partition_shape" else ".layout()")
    if operands and operands[0] in ("MN", "K"):
        return _operand_layout(op, [str(x) for x in operands])
    return _algebra(op, operands)


def _algebra(op: str, operands: Sequence[Operand]) -> str:
    arguments = [to_cpp(x) for x in operands]
    first = arguments[0]
    if op in _TEMPLATE_INTEGERS:
        numbers = ",".join(str(n) for x in operands[1:] for n in integers(x))
        return f"cute::{op}<{numbers}>({first})"
    if op in ("append", "prepend") and isinstance(operands[1], int):
        return f"cute::{op}<{operands[1]}>({','.join([first, *arguments[2:]])})"
    if op == "crd2crd":  # cutepy has pycute's order: the target shape before the source shape
        return f"cute::crd2crd({first},{arguments[2]},{arguments[1]})"
    if op in _METHODS:
        return f"({first}).{op}({arguments[1]})"
    if op in _ORDERS:
        return f"make_layout({first}, {_ORDERS[op]}{{}})"
    return f"cute::{op}({','.join(arguments)})"


# --------------------------------------------------------------------------------------------------------------------
# SM90 operand layouts and descriptors


def _operand_layout(op: str, operands: Sequence[str]) -> str:
    """An atom, or the shared-memory layout tiled from it."""
    major, swizzle, kind = operands[:3]
    if op == "gmma_atom_bits":
        return f"GMMA::Layout_{major}_{swizzle}_Atom_Bits{{}}"
    atom = f"GMMA::Layout_{major}_{swizzle}_Atom<{kind}>{{}}"
    if op == "gmma_atom":
        return atom
    if op == "gmma_atom_position_independent":
        return f"as_position_independent_swizzle_layout({atom})"
    shape, _, order = operands[3].partition(";order=")
    if op == "tile_to_shape" and len(operands) > 4:
        order = operands[4]
    return f"tile_to_shape({atom}, {to_cpp(shape)}{', ' + to_cpp(order) if order else ''})"


def _descriptor(index: int, op: str, operands: Sequence[str]) -> str:
    major, _, kind = operands[:3]
    smem = _operand_layout("smem_layout", operands)
    tile = f"Int<{operands[4]}>{{}}, Int<{operands[5]}>{{}}"
    if op == "desc_iterator_layout":
        return f"emit_iterator<{kind}, GMMA::Major::{major}>({index}, {smem}, {tile});"
    if op == "make_gmma_desc":
        where = ", ".join(operands[6:10])
        return f"emit_descriptor<{kind}, GMMA::Major::{major}>({index}, {smem}, {tile}, {where});"
    raise ValueError(f"the oracle knows no operation {op!r}")


# --------------------------------------------------------------------------------------------------------------------
# MMA atoms and tiled MMAs


def atom_type(name: str) -> str:
    """C++ type of an MMA atom; wgmma's operands that may be transposed are K-major, which no layout depends on."""
    if not name.startswith("SM90_64x") or re.search(r"_S32[SU]8", name):
        return name
    return f"{name}<>" if name.endswith("_TN") else f"{name}<GMMA::Major::K,GMMA::Major::K>"


def tiled_mma(operands: Sequence[Operand]) -> str:
    """C++ expression of a tiled MMA: an atom's name, and the layout of atoms, after a semicolon a permutation."""
    layout, _, permutation = str(operands[1]).partition(";")
    tiles = f", decltype({to_cpp(permutation)})" if permutation else ""
    return f"TiledMMA<MMA_Atom<{atom_type(str(operands[0]))}>, decltype({to_cpp(layout)}){tiles}>{{}}"


# --------------------------------------------------------------------------------------------------------------------
# Copy atoms and tiled copies


def copy_atom(name: str, bits: int) -> str:
    """C++ expression of a copy atom; types of 128 bits are CuTe's."""
    return f"Copy_Atom<{name.replace('uint128_t', 'cute::uint128_t')}, {_VALUE_TYPES[bits]}>{{}}"


def tiled_copy(operands: Sequence[Operand]) -> str:
    """C++ expression of a tiled copy: atom, bits, and after what it is tiled, with two or three operands of that.

    "tv": layouts of threads and values. "A", "B", "C", "C_atom": atom of an MMA, layout of these. "S", "D": a copy
    by the same bits, with layouts of threads and values.
    """
    atom, kind = copy_atom(str(operands[0]), int(operands[1])), str(operands[2])
    if kind == "tv":
        return f"make_tiled_copy({atom}, {to_cpp(operands[3])}, {to_cpp(operands[4])})"
    if kind in ("S", "D"):
        return f"make_tiled_copy_{kind}({atom}, {tiled_copy((operands[3], operands[1], 'tv', *operands[4:6]))})"
    return f"make_tiled_copy_{kind}({atom}, {tiled_mma(operands[3:5])})"
