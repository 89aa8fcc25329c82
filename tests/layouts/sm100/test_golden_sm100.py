"""Blackwell's layouts and descriptors against the reference vectors of C++ CuTe."""

from collections import defaultdict

import pytest

from cutepy.layouts import idx2crd, parse, size, sm100, to_text
from cutepy.layouts.sm100.tmem_cp import SHAPES
from tests.golden.calls import Vector, agrees, call, mismatches, vectors
from tests.golden.calls_sm100 import copy_traits

_SHOWN = 20


def _by_operation() -> list[tuple[str, list[Vector]]]:
    groups: dict[str, list[Vector]] = defaultdict(list)
    for row in vectors("umma"):
        groups[row["op"]].append(row)
    return sorted(groups.items())


@pytest.mark.parametrize("rows", [pytest.param(rows, id=name) for name, rows in _by_operation()])
def test_answers_equal_cute(rows: list[Vector]):
    """Atoms, descriptors, tensors of tensor memory and traits are C++ CuTe's, mode for mode."""
    wrong = mismatches(rows)
    assert not wrong, f"{len(wrong)} of {len(rows)} differ:\n" + "\n".join(wrong[:_SHOWN])


def test_every_vector_can_disagree():
    """Another answer is a disagreement, whatever the operation."""
    for _, rows in _by_operation():
        others = [row["out"] for row in rows if row["out"] != rows[0]["out"]]
        assert not agrees(call(rows[0]["op"], rows[0]["in"]), others[0])


def test_copies_reach_the_bits_that_cute_says():
    """(thread, bit) -> bit of tensor memory, by CuTe's two layouts and by ours of lanes and columns."""
    for row in (row for row in vectors("umma") if row["op"] == "tmem_copy_traits" and "_LOAD_" in row["in"][0]):
        traits = copy_traits(row["in"][0])
        destination, val_id = (parse(row["out"][name]) for name in ("DstLayout", "ValID"))
        for thread in range(0, 32, 5):
            for register in range(0, traits.registers, 3):
                lane, column = traits.layout(thread, register)
                assert divmod(val_id(destination(thread, 32 * register)), 1 << 21) == (lane, 32 * column)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_rows_reach_the_lanes_that_cute_says(shape):
    """CuTe's bits of a copy from shared memory: its rows, and the lanes that each reaches."""
    traits = sm100.tmem_cp_traits(shape)
    row = next(row for row in vectors("umma") if row["in"] == [traits.name])
    source, destination, val_id = (parse(row["out"][name]) for name in ("SrcLayout", "DstLayout", "ValID"))
    reached = {(source(i) % 128, val_id(destination(i)) >> 21) for i in range(size(source))}
    rows, copies = traits.lanes[0], traits.lanes[1].size()
    places = [idx2crd(index, rows.shape) for index in range(rows.size())]
    assert {lane for _, lane in reached} == {traits.lanes((at, copy)) for at in places for copy in range(copies)}
    assert len({lane for _, lane in reached}) == traits.rows * copies


def test_texts_read_back():
    """Texts of Blackwell's layouts are read as CuTe prints them."""
    for row in vectors("umma"):
        texts = row["out"].values() if isinstance(row["out"], dict) else [row["out"]]
        for text in texts:
            if isinstance(text, str) and not text.startswith("0x"):
                assert to_text(parse(text)) == text


def test_atoms_have_their_names_back():
    for row in (row for row in vectors("umma") if row["op"] == "umma_traits"):
        assert sm100.traits_named(row["in"][0]).name == row["in"][0]
