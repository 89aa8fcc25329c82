"""Text beside a value: its table, its name, and text that is neither, which ``parse`` refuses."""

import re

import pytest

from cutepy.layouts import Layout, parse, parse_all, to_text
from cutepy.layouts.errors import ParseError
from cutepy.layouts.notation.unknowns import RuntimeValue
from tests.messages import refuses

VALUES, NO_VALUE = "a table of values", "no value in it"


def rows(count, width, end="\n"):
    """Rows of numbers as C++ print_tensor writes them."""
    return end.join("".join(f"{i * width + j:10.2e}" for j in range(width)) for i in range(count))


def grid(layout):
    """The table that C++ print_layout writes below the layout."""
    m, n = layout.shape
    border = "    +" + "----+" * n
    lines = ["   " + "".join(f"{j:5d}" for j in range(n)), border]
    for i in range(m):
        lines += [f"{i:2d}  |" + "|".join(f"{layout(i, j):3d} " for j in range(n)) + "|", border]
    return "\n".join(lines)


PLANES = f"{rows(2, 3)}\n{'-' * 15}\n{rows(2, 3)}"
RMEM = "raw_ptr(0x7ffe: f32, rmem, align<32>)"
TABLES = [
    f"(4,8):(8,1)\n{rows(4, 8)}",
    f"sA: (4,8):(8,1):\n{rows(4, 8)}\n",
    f"gmem_ptr[32b](0x7f00) o (_4,8):(8,_1):\n{rows(4, 8)}",
    f"gmem_ptr[32b](0x7f00) o ((2,2),(2,4)):((1,2),(4,8)):\n{rows(4, 8)}",
    f"(4,8):(8,1)  // row-major\n{rows(4, 8)}",
    f"(3):(1):\n{rows(3, 1)}",
    "ptr[32b](0x10) o 8:1:\n" + "\n".join(map(str, range(8))),
    f"(2,3,2):(1,2,6):\n{PLANES}",
    f"(2,3,2,2):(1,2,6,12):\n{PLANES}\n{'=' * 15}\n{PLANES}",
    "Tensor<0x7f00@gmem o (2,2):(2,1)>\n 1 2\n 3 4",
    "(2,2):(1,2):\n nan -inf\n 0x10 -3",
    "ArithTuple(0,0) o (2,2):(1@0,1@1):\n  (0,0)  (0,1)\n  (1,0)  (1,1)",
    f"(2,4):(4,1)\n{grid(Layout((2, 4), (4, 1)))}",
    "(2,2):(1@0,1@1)\n    0     1\n +-----+-----+\n0|(0,0)|(0,1)|\n +-----+-----+\n1|(1,0)|(1,1)|\n +-----+-----+",
    "(_2,_3):(_3,_1)\n    0 1 2\n  +-------+\n0 | 0 1 2 |\n1 | 3 4 5 |\n  +-------+",
    f"t {RMEM} o (4,8):(1,4) =\n  ( 0.000000, 0.000000, [...] )",
    f"t {RMEM} o (2,2):(1,2) =\n  ( 0.0, 1.0, 2.0, 3.0 )",
    f"tensor({RMEM} o (2,3):(1,2), data= (\n\t(0,0)= 1.500000\n\t(1,0)= 1.500000\n)",
    f"tensor({RMEM} o (2,3):(3,1), data=\n  [[ 0.0, 1.0, 2.0, ],\n   [ 3.0, 4.0, 5.0, ]])",
    f"tensor({RMEM} o (9,3):(3,1), data=\n  [[ 0.0, 1.0, 2.0, ],\n   ...\n   [ 3., 4., 5., ]])",
]  # fmt: skip


@pytest.mark.parametrize("text", TABLES)
def test_a_table_of_the_elements_may_stand_below_a_value(text):
    text = text.rstrip()
    parse(text.replace("t raw_ptr", "t: raw_ptr"))
    paste = parse_all(f"{text}\ndone\n(2,2):(1,2)")
    lines = text.count("\n") + 1
    assert [(skipped.first, skipped.last, skipped.why) for skipped in paste.skipped if skipped.why != "a comment"] == [
        (2, lines, VALUES),
        (lines + 1, lines + 1, NO_VALUE),
    ]
    assert len(paste.values) == 2
    assert paste.errors == ()


def test_a_table_below_an_extent_that_is_open_has_the_known_columns():
    text = "gA: tensor<ptr<f32, gmem> o (?,4):(4,1)>:\n"
    found = parse_all(text + rows(3, 4))
    assert isinstance(found.values[0].value, RuntimeValue)
    assert [skipped.why for skipped in found.skipped] == [VALUES]
    assert [skipped.why for skipped in parse_all(text + rows(3, 5)).skipped] == [NO_VALUE]


NO_TABLES = [
    "(4,8):(8,1)\n4:1",
    "(4,8):(8,1)\n+5",
    "(4,8):(8,1)\n-5",
    "(4,8):(8,1)\n7",
    "(4,8):(8,1):\n7",
    "(4,8):(8,1)\n0x10",
    "(4,8):(8,1)\n(2,2)",
    "(4,8):(8,1)\n(2,2)\n7",
    "(4,8):(8,1) =\n(2,2)",
    "(4,8):(8,1)\n(2,2):(1,2)",
    "(4,8):(8,1)\n1 2 3 4",
    f"(4,8):(8,1)\n{rows(4, 7)}",
    f"(4,8):(8,1)\n{rows(3, 8)}",
    f"(4,8):(8,1)\n{rows(5, 8)}",
    f"(4,8):(8,1)\n\n{rows(4, 8)}",
    f"(4,8):(8,1)\n{rows(4, 8)} x",
    f"(4,8):(8,1) {rows(4, 8)}",
    f"(4,8):(8,1)\n{rows(4, 8)}\n7",
    "(1):(0)\n5",
    f"(2,3,2):(1,2,6):\n{rows(2, 3)}",
    f"(2,4):(4,1)\n{grid(Layout((2, 4), (1, 2)))}",
    f"(2,4):(4,1)\n{grid(Layout((3, 4), (4, 1)))}",
    "(4,8):(8,1) = (2,2)",
    "(4,8):(8,1) = 4 5",
    "(4,8):(8,1) == (4,8):(1,4)",
    "(4,8):(8,1) != (4,8):(1,4)",
    f"tensor({RMEM} o (2,3):(1,2), data= (\n\t(2,0)= 1.5\n)",
    f"(2,2,2):(1,2,4):\n1 2\n3 4\n{'-' * 5000}!",
    "(4,8):(8,1) /* a */ + 5",
    "(4,8):(8,1)\n/* a */ 5",
    "(4,8):(8,1) --5",
    "(4,8):(8,1)\n)",
    "(4,8):(8,1)\n()",
    "(4,8):(8,1)\n-",
    "(\n(4,8):(8,1)",
]


@pytest.mark.parametrize("text", NO_TABLES)
def test_nothing_else_below_or_beside_a_value_is_lost(text):
    with refuses(ParseError):
        parse(text)
    paste = parse_all(text)
    told = [*paste.values[1:], *paste.errors, *(part for part in paste.skipped if part.why != VALUES)]
    assert told


def test_a_layout_alone_on_a_line_is_a_value():
    assert [to_text(found.value) for found in parse_all("(4,8):(8,1)\n4:1\n12:30 done").values] == [
        "(4,8):(8,1)",
        "4:1",
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A.shape=(4,8) B.stride=(1,4)", ["(4,8)", "(1,4)"]),
        ("shape=(4,8) B.stride=(1,4)", ["(4,8)", "(1,4)"]),
        ("A.shape=(4,8) stride=(1,4)", ["(4,8)", "(1,4)"]),
        ("x.shape=(4,8) y.shape=(2,2) x.stride=(8,1)", ["(4,8)", "(2,2)", "(8,1)"]),
        ("A.shape=(4,8) shape=(2,2) stride=(2,1)", ["(4,8)", "(2,2):(2,1)"]),
        ("shape=(4,8) stride=(8,1) x.stride=(1,4)", ["(4,8):(8,1)", "(1,4)"]),
    ],
)
def test_a_shape_goes_with_the_stride_of_its_tensor(text, values):
    assert [to_text(found.value) for found in parse_all(text).values] == values
    with pytest.raises(ParseError):
        parse(text)


@pytest.mark.parametrize("stem", ["", "x.", "self.a."])
def test_a_shape_and_a_stride_of_one_tensor_are_a_layout(stem):
    assert parse(f"{stem}shape=(4,8), {stem}stride()=(8,1)") == Layout((4, 8), (8, 1))


@pytest.mark.parametrize(
    "value", ["(4,8):(8,1)", "Sw<3,4,3> o 0 o (8,8):(8,1)", "Layout((4, 8), (8, 1))", "shape=4 stride=2"]
)
@pytest.mark.parametrize(
    "before", ["not", "no", "minus", "Not", "NOT", "// not", "[0] not", "- ", "(x)", "[2]", "a b", "sA not", "sA: not"]
)
def test_a_word_before_a_value_is_no_name_without_a_sign_behind_it(before, value):
    with pytest.raises(ParseError) as caught:
        parse(f"{before} {value}")
    assert caught.value.position <= len(before)
    assert parse_all(f"{before} {value}").values
    if re.search("[a-z]", before) and before[0] != "(":
        assert parse(f"{before}: {value}") == parse(value)


@pytest.mark.parametrize(
    "name", ["sA", "tCrC", "A", "layout_a", "x2", "* tAgA", "[thread 0] gA", "// sA", "[thread 0]", "1.", "sA: layout"]
)
def test_a_name_as_programs_have_them_stands_before_a_value(name):
    assert parse(f"{name} (4,8):(8,1)") == Layout((4, 8), (8, 1))


@pytest.mark.parametrize("digit", ["\u0664", "\u096a", "\U0001d7d2", "\u2074"])
@pytest.mark.parametrize(
    "text", ["({},8):(8,1)", "(1{},8):(8,1)", "Layout({}, 1)", " - lane=1 -> ({}, 2)", "tensor<{}x8xf16, #b>"]
)
def test_digits_of_other_scripts_are_refused(digit, text):
    with pytest.raises(ParseError):
        parse(text.format(digit))


def test_full_width_digits_are_read():
    assert parse("\uff08\uff14\uff0c\uff18\uff09:(\uff18,1)") == Layout((4, 8), (8, 1))


def test_a_character_that_shows_nothing_is_told():
    (found,) = parse_all("(4,8\u200b):(8,1)").values
    assert found.value == parse("(4,8\u200b):(8,1)") == Layout((4, 8), (8, 1))
    assert any("U+200B" in note for note in found.notes)
    assert parse_all("(4,8):(8,1)").values[0].notes == ()
    with refuses(ParseError) as caught:
        parse("(4,1\u200b6):(8,1)")
    assert caught.value.position == 5


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("PaddedSharedLayout", "([[512, 16]], order=[1, 0])"),
        ("ttgl.AutoLayout", "()"),
        ("GMMA::Layout_K_SW128_Atom", "<half_t>"),
        ("cute::LayoutOf", "<C<8>>"),
    ],
)
def test_the_error_of_an_unknown_constructor_names_those_that_are_read(name, arguments):
    with refuses(ParseError) as caught:
        parse(name + arguments)
    assert caught.value.position == 0
    if "Of" not in name:
        with refuses(ParseError) as caught:
            parse(f"sA: {name}{arguments}")
        assert caught.value.position == 4
        assert parse_all(f"(2,2):(1,2)\nsA = {name}{arguments}").errors


@pytest.mark.parametrize("kind", ["long long", "unsigned long long", "long", "int64_t"])
def test_wide_integers_of_cpp_are_left_open(kind):
    text = f"cute::Layout<cute::tuple<{kind}, cute::C<8>>, cute::tuple<cute::C<8>, cute::C<1>>>"
    (found,) = parse_all(text).values
    assert isinstance(found.value, RuntimeValue)
    assert [(unknown.text, unknown.bits) for unknown in found.value.unknowns] == [(kind, 64)]
    assert parse(text, given=[2**40]) == Layout((2**40, 8), (8, 1))
    assert parse(f"cute::Layout<cute::C<({kind})8>, cute::C<1>>") == Layout(8, 1)
