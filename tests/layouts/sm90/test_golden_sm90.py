"""Hopper's layouts and descriptors against the reference vectors of C++ CuTe."""

from collections import defaultdict
from functools import cache

import pytest

from cutepy.layouts import LayoutError, composition, cosize, make_layout, parse, sm90, tile_to_shape, to_text
from tests.golden.calls import Vector, descriptor_of_tile, mismatches, vectors
from tests.messages import refuses

_SHOWN = 20
_FILES = ("gmma_atoms", "tile_to_shape", "descriptors", "tv_layouts", "extra_sm90", "copies")


def _by_operation() -> list[tuple[str, list[Vector]]]:
    groups: dict[str, list[Vector]] = defaultdict(list)
    for file in _FILES:
        for row in vectors(file):
            groups[f"{file}-{row['op']}"].append(row)
    return sorted(groups.items())


@pytest.mark.parametrize("rows", [pytest.param(rows, id=name) for name, rows in _by_operation()])
def test_answers_equal_cute(rows: list[Vector]):
    """Atoms, staged layouts, descriptor iterators and TV layouts are C++ CuTe's."""
    wrong = mismatches(rows)
    assert not wrong, f"{len(wrong)} of {len(rows)} differ:\n" + "\n".join(wrong[:_SHOWN])


def test_descriptors_from_tiles_alone():
    """`make_gmma_desc` needs no more than the tile that CuTe handed to it."""
    wrong = []
    for row in (r for r in vectors("descriptors") if r["op"] == "make_gmma_desc"):
        made = descriptor_of_tile(*row["in"][:3], row["out"])
        if made != row["out"]["desc"]:
            wrong.append(f"{row['in'][:3]} {row['out']['tile']}: expected {row['out']['desc']}, got {made}")
    assert not wrong, "\n".join(wrong[:_SHOWN])


def test_refuses_tiles_that_are_not_canonical():
    """The three descriptors that CuTe's static_asserts refuse."""
    swizzled = tile_to_shape(sm90.gmma_layout_atom("MN", "SW128", 16), (192, 64, 2))
    with pytest.raises(LayoutError):
        sm90.GmmaDescriptorIterator(swizzled, major="MN", bits=16, mma_shape=(96, 16))
    with pytest.raises(LayoutError):
        sm90.make_gmma_desc(parse("Sw<0,4,3> o 0 o (64,16):(16,1)"), major="K", bits=16, start_address=0)
    with pytest.raises(LayoutError):
        sm90.make_gmma_desc(parse("Sw<3,4,2> o 0 o (64,16):(64,1)"), major="K", bits=16, start_address=0)


def test_refuses_an_atom_that_does_not_divide():
    """A K-major SW128 atom has 8 rows, which do not divide 100."""
    with refuses(LayoutError):
        tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16, pointer_swizzle=True), (100, 64))


# --------------------------------------------------------------------------------------------------------------------
# The tutorial: one 128x128x64 tile, three stages, SM90_64x64x16_F16F16F16_SS, for all eight atoms


@cache
def _operands(name: str) -> tuple[object, sm90.TiledMMA, str]:
    major, swizzle = name.split("_")
    atom = sm90.gmma_layout_atom(major, swizzle, 16, pointer_swizzle=True)
    return tile_to_shape(atom, (128, 64, 3)), sm90.TiledMMA(sm90.wgmma_traits("SM90_64x64x16_F16F16F16_SS")), major


def _tutorial(op: str, name: str, *rest: int) -> object:
    staged, mma, major = _operands(name)
    plain = staged.layoutA
    if op == "atom":
        return to_text(sm90.gmma_layout_atom(*name.split("_"), 16, pointer_swizzle=True))
    if op in ("sA_layout", "sB_layout"):
        return to_text(staged)
    if op == "cosize_sA":
        return cosize(staged)
    if op == "sA_tensor_layout":
        return to_text(plain)
    if op in ("tCsA", "tCsB"):
        return to_text(getattr(mma, f"partition_{op[-1]}")(plain, 0)[0])
    if op.startswith("tCr") and op[3] in "AB":
        _, _, address = op.partition("_desc@")
        iterator = sm90.GmmaDescriptorIterator(
            staged, major=major, bits=16, mma_shape=(64, 16), base_address=int(address or "0", 16)
        )
        return f"0x{int(iterator[rest]):016x}" if address else to_text(iterator.layout)
    if op == "mma_thr_layout_vmnk":
        return to_text(mma.thr_layout_vmnk)
    if op == "mma_tile_shape":
        return to_text(mma.tile_shape)
    stride = (1, rest[0]) if "colmajor" in op else (rest[0], 1)
    tile = make_layout((128, 128), stride)
    return to_text(mma.fragment_C(tile) if op == "tCrC" else mma.partition_C(tile, 0)[0])


@pytest.mark.parametrize("file", ["tutorial", "tutorial_cutlass351"])
def test_tutorial(file: str):
    """Every tensor and descriptor that the WGMMA tutorial prints.

    CUTLASS 3.5 coalesced the stage mode (`3:8192` where today prints `(1,3):(0,8192)`), which keeps the function:
    those vectors are compared as functions.
    """
    wrong = []
    for row in vectors(file):
        got = _tutorial(row["op"], *row["in"])
        if got != row["out"] and not (file == "tutorial_cutlass351" and _same_function(got, row["out"])):
            wrong.append(f"{row['op']} {row['in']}: expected {row['out']}, got {got}")
    assert not wrong, "\n".join(wrong[:_SHOWN])


def _same_function(first: object, second: object) -> bool:
    a, b = parse(str(first)), parse(str(second))
    return to_text(composition(a, make_layout(a.size()))) == to_text(composition(b, make_layout(b.size())))
