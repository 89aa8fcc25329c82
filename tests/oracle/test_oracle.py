"""The oracle's own parts that need no compiler: reading, writing, drawing."""

import pytest

from cutepy.layouts import sm80
from tests.golden.calls import vectors
from tests.oracle.compare import ours
from tests.oracle.cpp import Case, Rejected
from tests.oracle.cpp_types import value_of_spelling, value_of_type
from tests.oracle.notation import to_cpp
from tests.oracle.questions import questions
from tests.oracle.questions_copy import WARP_ATOMS, copies
from tests.oracle.questions_sm90 import atom_names, extended_atom_names, hopper
from tests.oracle.questions_sm100 import blackwell, fixed
from tests.oracle.statements import expression, statement


@pytest.mark.parametrize(
    ("text", "cpp"),
    [
        (4, "Int<4>{}"),
        ("(4)", "cute::make_tuple(Int<4>{})"),
        ("(2,(4,-2))", "cute::make_tuple(Int<2>{},cute::make_tuple(Int<4>{},Int<-2>{}))"),
        ("<8,_,2:1>", "cute::make_tuple(Int<8>{},Underscore{},make_layout(Int<2>{},Int<1>{}))"),
        ("Sw<3,0,-3> o 8 o 4:1", "composed(Swizzle<3,0,-3>{},Int<8>{},make_layout(Int<4>{},Int<1>{}))"),
        ("(Sw<1,0,1> o 0 o 4:1) o 0 o 2:1@0@1", "composed(composed(Swizzle<1,0,1>{},Int<0>{},"
         "make_layout(Int<4>{},Int<1>{})),Int<0>{},make_layout(Int<2>{},ScaledBasis<Int<1>,1,0>{}))"),
        ("smem_ptr[16b](unset)", "smem_ptr_flag_bits<16>{}"),
    ],
)  # fmt: skip
def test_operands_as_cpp(text: int | str, cpp: str):
    assert to_cpp(text) == cpp


@pytest.mark.parametrize("text", ["(4", "4:", "(4) 5", "[4]", "<4)"])
def test_refuses_what_is_not_notation(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - any of the reader's messages
        to_cpp(text)


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        ("cute::C<4>", 4),
        ("cute::C<false>", False),
        ("std::integral_constant<bool, true>", None),
        ("int", None),
        ("cute::Layout<cute::tuple<cute::C<4> >, cute::tuple<cute::C<-1> > >", "(4):(-1)"),
        ("cute::tuple<cute::Layout<cute::C<2>, cute::C<1> >, cute::C<32> >", "<2:1,32>"),
        ("cute::ScaledBasis<cute::C<3>, 1, 0>", "3@0@1"),
        ("cute::Layout<cute::tuple<cute::C<4>, int>, cute::tuple<cute::C<1>, cute::C<4> > >", None),
    ],
)
def test_values_of_types(spelling: str, value: object):
    assert value_of_type(spelling) == value
    assert value_of_spelling({"type": f"const char* oracle::spelled<{spelling}>()"}) == value


def test_every_vector_has_a_statement():
    """The oracle knows how to ask every operation of the reference vectors."""
    for file in ("algebra", "gmma_atoms", "tile_to_shape", "descriptors", "tv_layouts", "copies", "umma"):
        for row in vectors(file):
            assert statement(0, row["op"], row["in"]).endswith(";")


def test_draws_are_reproducible_and_cover_the_vectors_operations():
    drawn = list(questions(7, 1500))
    assert drawn == list(questions(7, 1500))
    missing = {row["op"].split("<")[0] for row in vectors("algebra")} - {op.split("<")[0] for op, _ in drawn}
    assert not missing
    assert all(expression(op, operands) or statement(0, op, operands) for op, operands in drawn)
    hopper_ops = {op for op, _ in hopper(3, 600)}
    asked = {row["op"] for file in ("gmma_atoms", "tv_layouts", "tile_to_shape") for row in vectors(file)}
    assert asked - hopper_ops == {"gmma_atom_bits", "mma_traits"}
    assert {"SM90_64x8x16_F32F16F16_SS", "SM90_64x256x32_S32U8S8_RS_TN_SATURATE"} <= set(atom_names())
    copy_ops = {op for op, _ in copies(3, 300)}
    assert {row["op"] for row in vectors("copies")} == copy_ops
    drawn_of_blackwell = list(blackwell(3, 200))
    assert drawn_of_blackwell == list(blackwell(3, 200))
    assert {row["op"] for row in vectors("umma")} >= {op for op, _ in drawn_of_blackwell}
    assert [(row["op"], tuple(row["in"])) for row in vectors("umma")] == fixed()
    assert len(atom_names()) == 320
    assert len(extended_atom_names()) == 736
    assert sorted(WARP_ATOMS) == sorted(sm80.mma_names())


def test_drawn_cases_end_in_a_value_or_a_layout_error():
    """Whatever is drawn, cutepy answers or raises LayoutError: no other exception."""
    answers = [(q, ours(Case(*q))) for q in questions(11, 1500)]
    odd = [(q, a) for q, a in answers if isinstance(a, str) and "Error: " in a]
    assert not odd
    refused = sum(isinstance(a, Rejected) for _, a in answers)
    assert 0 < refused < 700
