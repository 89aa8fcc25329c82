"""Layouts against the reference vectors of C++ CuTe, through the public calls that `tests/golden/README.md` pins."""

from collections import defaultdict

import pytest

import cutepy.layouts as cl
from cutepy.layouts import LayoutError, parse, to_text
from tests.golden.calls import Vector, call, mismatches, vectors
from tests.messages import refuses

_SHOWN = 20


def _by_operation(*files: str) -> list[tuple[str, list[Vector]]]:
    groups: dict[str, list[Vector]] = defaultdict(list)
    for file in files:
        for row in vectors(file):
            groups[f"{file}-{row['op']}"].append(row)
    return sorted(groups.items())


def _texts(value: object) -> list[str]:
    """Every text of the notation inside a vector's operand or answer."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | dict):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in _texts(item)]
    return []


@pytest.mark.parametrize(
    "rows", [pytest.param(rows, id=name) for name, rows in _by_operation("algebra", "extra") if rows[0]["out"]]
)
def test_answers_equal_cute(rows: list[Vector]):
    """Every vector's answer is C++ CuTe's, mode for mode."""
    wrong = mismatches([row for row in rows if row["out"] is not None])
    assert not wrong, f"{len(wrong)} of {len(rows)} differ:\n" + "\n".join(wrong[:_SHOWN])


def _refused() -> list[Vector]:
    """Vectors that CuTe rejects; those whose operation or operands are prose have tests of their own."""
    rows = [row for file in ("invalid", "extra") for row in vectors(file) if row["out"] is None]
    return [
        row
        for row in rows
        if hasattr(cl, row["op"].split("<")[0]) and "half_t" not in f"{row['in']}" and _readable(row)
    ]


def _readable(row: Vector) -> bool:
    return not any("L<" in str(operand) for operand in row["in"])


@pytest.mark.parametrize("row", _refused(), ids=lambda row: f"{row['op']}({', '.join(map(str, row['in']))})")
def test_refuses_what_cute_refuses(row: Vector):
    """A static_assert of CuTe is a LayoutError here that names the operation and its operands."""
    with pytest.raises(LayoutError) as raised:
        call(row["op"], row["in"])
    error = raised.value
    assert error.operation == row["op"].split("<")[0]
    assert error.condition
    assert str(error).startswith(f"{error.operation}(")


def test_refuses_a_tile_that_does_not_divide_under_a_swizzle():
    """`tile_to_shape(Sw<3,3,3> o a)`: the block's 8 rows do not divide 100."""
    with refuses(LayoutError):
        cl.tile_to_shape(parse("Sw<3,3,3> o 0 o (8,64):(64,1)"), (100, 64))


def test_refuses_a_swizzle_that_a_layout_cannot_carry():
    """A row-major 32x32 layout maps the bits of Sw<3,0,3> to bits that no one swizzle exchanges."""
    with refuses(LayoutError):
        cl.composition(parse("(32,32):(32,1)"), cl.Swizzle(3, 0, 3))


@pytest.mark.parametrize("file", ["algebra", "gmma_atoms", "tile_to_shape", "descriptors", "tv_layouts", "tutorial"])
def test_text_of_every_vector_reads_back(file: str):
    """`to_text(parse(text)) == text` for every operand and answer in the notation, and values compare equal."""
    plain = {"MN", "K", "INTER", "SW32", "SW64", "SW128"}
    texts = {text for row in vectors(file) for text in _texts([row["in"], row["out"]])}
    notation = [t for t in texts if t not in plain and (t[0] in "(<-0123456789" or t.startswith("Sw<"))]
    notation = [t for t in notation if not t.startswith("0x") and ";order=" not in t]
    notation = [t for t in notation if not _has_negative_extent(t)]
    wrong = [text for text in notation if to_text(parse(text)) != text or parse(to_text(parse(text))) != parse(text)]
    assert notation
    assert not wrong, wrong[:_SHOWN]


def _has_negative_extent(text: str) -> bool:
    """Return True for a text of a result that CuTe makes of negative strides, and that is refused as text."""
    try:
        parse(text)
    except LayoutError as error:
        return error.condition.startswith("extents must be >= 0")
    return False


def test_a_wrong_answer_is_reported():
    """The comparison can fail: a vector with another answer, a refused vector and a wrong type are all reported."""
    row = {"op": "coalesce", "in": ["(2,4):(1,2)"], "out": "8:2"}
    refused = {"op": "complement", "in": ["(2,2):(1,1)"], "out": "1:0"}
    number = {"op": "size", "in": ["4:1"], "out": "4"}
    flag = {"op": "congruent", "in": [2, 2], "out": 1}
    assert len(mismatches([row, refused, number, flag])) == 4
    assert mismatches([{**row, "out": "8:1"}]) == []
