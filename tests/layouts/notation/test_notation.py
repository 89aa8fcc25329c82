"""``parse`` and ``to_text``: what they write, what they read, what they refuse."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    ScaledBasis,
    SmemPtr,
    Swizzle,
    compare,
    left_inverse,
    parse,
    parse_all,
    sm90,
    to_text,
)
from cutepy.layouts.errors import LayoutError, ParseError
from cutepy.layouts.render import picture_of, render_text
from tests.messages import refuses

SW128 = Swizzle(3, 4, 3)
NEGATIVE = Swizzle(3, 0, -3)
TILE = Layout((64, 8), (1, 64))

# (value, text), read and written alike.
PAIRS: list[tuple[Any, str]] = [
    (0, "0"),
    (-7, "-7"),
    ((), "()"),
    ((4,), "(4)"),
    (((4,),), "((4))"),
    ((8, (2, 4), ()), "(8,(2,4),())"),
    (None, "_"),
    ((None,), "<_>"),
    ((8, None, Layout((2, 2), (1, 4))), "<8,_,(2,2):(1,4)>"),
    (((0, None), None, (1, 2)), "<<0,_>,_,(1,2)>"),
    ((Layout(8, 1),), "<8:1>"),
    ((Layout((4,), (1,)), 0), "<(4):(1),0>"),
    (ScaledBasis(1, (0,)), "1@0"),
    (ScaledBasis(-3, (1, 0)), "-3@0@1"),
    ((ScaledBasis(1, (0,)), 2), "(1@0,2)"),
    (Layout(4, 2), "4:2"),
    (Layout((), ()), "():()"),
    (Layout((2, (4, 2)), (-1, (2, 8))), "(2,(4,2)):(-1,(2,8))"),
    (Layout((8, (2, 2)), (ScaledBasis(1, (0,)), (ScaledBasis(1, (1, 0)), 0))), "(8,(2,2)):(1@0,(1@0@1,0))"),
    (SW128, "Sw<3,4,3>"),
    (NEGATIVE, "Sw<3,0,-3>"),
    ((SW128,), "<Sw<3,4,3>>"),
    (SmemPtr(16), "smem_ptr[16b](unset)"),
    (SmemPtr(8, 0x400), "smem_ptr[8b](0x400)"),
    (SmemPtr(8, 0), "smem_ptr[8b](0x0)"),
    (ComposedLayout(SW128, -5, TILE), "Sw<3,4,3> o -5 o (64,8):(1,64)"),
    (ComposedLayout(SW128, SmemPtr(16), TILE), "Sw<3,4,3> o smem_ptr[16b](unset) o (64,8):(1,64)"),
    (ComposedLayout(TILE, (1, 2), Layout(2, ScaledBasis(1, (0,)))), "(64,8):(1,64) o (1,2) o 2:1@0"),
    (
        ComposedLayout(ComposedLayout(SW128, 0, TILE), 4, Layout(8, 1)),
        "(Sw<3,4,3> o 0 o (64,8):(1,64)) o 4 o 8:1",
    ),
    (ComposedLayout(SW128, 0, ComposedLayout(NEGATIVE, 1, TILE)), "Sw<3,4,3> o 0 o Sw<3,0,-3> o 1 o (64,8):(1,64)"),
    ((ComposedLayout(SW128, 0, Layout(8, 1)), 3), "<Sw<3,4,3> o 0 o 8:1,3>"),
    ((ComposedLayout(SW128, 0, Layout(8, 1)),), "<Sw<3,4,3> o 0 o 8:1>"),
]

# (text of another tool, our text of the same value).
FOREIGN = [
    # C++ CuTe
    ("((_64,_2),(_8,_8),_3):((_1,_512),(_64,_1024),_8192)", "((64,2),(8,8),3):((1,512),(64,1024),8192)"),
    ("(_4,_2):\u200f(_-1,0)", "(4,2):(-1,0)"),
    ("(_1@0,_1@1)", "(1@0,1@1)"),
    ("(_8:_1,_,_4)", "<8:1,_,4>"),
    ("(8:1)", "<8:1>"),
    ("(Sw<3,4,3>,4)", "<Sw<3,4,3>,4>"),
    ("Sw<3,4,3> o smem_ptr[16b](0x7f8800000400) o 8:1", "Sw<3,4,3> o smem_ptr[16b](0x7f8800000400) o 8:1"),
    ("Sw<3,4,3>_smem_ptr[16b](0x7f880000c400) o\n  8:1", "Sw<3,4,3> o smem_ptr[16b](0x7f880000c400) o 8:1"),
    ("Sw<3,4,3>_smem_ptr[16b]((nil)) o 8:1", "Sw<3,4,3> o smem_ptr[16b](0x0) o 8:1"),
    ("smem_ptr[16b](0x400) o 8:1", "8:1"),
    (
        "gmem_ptr[16b](0x7f877a780000) o ((_2,_2,_8),_2,_2):((512,_8,4096),_64,32768)",
        "((2,2,8),2,2):((512,8,4096),64,32768)",
    ),
    ("ptr[16b](0x7feee1fffbe0) o _8:_1", "8:1"),
    ("ptr[32b](0x10) o Sw<3,4,3> o _0 o _8:_1", "Sw<3,4,3> o 0 o 8:1"),
    ("GMMA::DescriptorIterator o (_1,_2,_4,_3):(_0,_64,_256,_1024)", "(1,2,4,3):(0,64,256,1024)"),
    ("ArithTuple(_0,_0) o (8,4):(_1@0,_1@1)", "(8,4):(1@0,1@1)"),
    # web pages
    (
        "Sw&lt;3,4,3&gt; o smem_ptr[16b](unset) o (_128,_64):(_64,_1)",
        "Sw<3,4,3> o smem_ptr[16b](unset) o (128,64):(64,1)",
    ),
    ("Sw&lt;3,4,3> o 0 o&nbsp;8:1", "Sw<3,4,3> o 0 o 8:1"),
    ("&lt;8,_&gt;", "<8,_>"),
    # the DSL
    ("S<3,4,3>", "Sw<3,4,3>"),
    ("S<3,0,-3 o 0 o (8,8):(1,8)", "Sw<3,0,-3> o 0 o (8,8):(1,8)"),
    ("S<3,0,-3", "Sw<3,0,-3>"),
    ("S<5,20,7 o 0 o 8:1", "Sw<5,20,7> o 0 o 8:1"),
    ("(S<3,0,3> o 0 o 8:1 o 0 o 8:2)", "Sw<3,0,3> o 0 o 8:1 o 0 o 8:2"),
    ("tensor<ptr<f32, generic> o (8,4):(4,1)>", "(8,4):(4,1)"),
    ("tensor<ptr<f32, rmem, align<32>> o (4,4):(1,4)>", "(4,4):(1,4)"),
    ("tensor<ptr<f16, smem, align<1024>, S<3,4,3>> o 8:1>", "Sw<3,4,3> o smem_ptr[16b](unset) o 8:1"),
    ("tensor<ptr<f8E4M3FN, smem, align<1024>, S<2,0,-3>> o 8:1>", "Sw<2,0,-3> o smem_ptr[8b](unset) o 8:1"),
    ("tensor<ptr<f16, smem, align<1024>> o S<3,4,3> o 0 o 8:1>", "Sw<3,4,3> o 0 o 8:1"),
    ("tensor<(0,0) o (8,8):(1@0,1@1)>", "(8,8):(1@0,1@1)"),
    ("tensor<(0,(0,0)) o 8:1@0>", "8:1@0"),
    ("[2:1;_]", "<2:1,_>"),
    ("[(4,2):(1,8);[2:1;_];8]", "<(4,2):(1,8),<2:1,_>,8>"),
    # pycute and Python
    ("(2, 3):(1, 2)", "(2,3):(1,2)"),
    ("(4,):(1,)", "(4):(1)"),
    ("SW_3_4_-3 o 0 o (8, 8):(1, 8)", "Sw<3,4,-3> o 0 o (8,8):(1,8)"),
    ("(None, 3)", "<_,3>"),
    # grouping
    ("(4:1) o 0 o (8:1)", "4:1 o 0 o 8:1"),
    ("(Sw<3,4,3>) o 0 o (8:1)", "Sw<3,4,3> o 0 o 8:1"),
    ("Sw<3,4,3> o 0 o (Sw<1,0,1> o 0 o 8:1)", "Sw<3,4,3> o 0 o Sw<1,0,1> o 0 o 8:1"),
    (" \t( 8 ,\n 2 ) : ( 1 , 8 ) ", "(8,2):(1,8)"),
]

# (text, position of the caret, part of the message).
REJECTED = [
    ("", 0),
    ("(2,3:(1,2)", 5),
    ("(2,3]:(1,2)", 4),
    ("(2,3", 4),
    ("<2,3)", 4),
    ("(2,,3)", 3),
    ("[2,3]", 2),
    ("(2,3) 4", 6),
    ("((_64,_2),(_8,_8),_3)(_1,_512)", 21),
    ("(2,x)", 3),
    ("(2,$)", 3),
    ("(2,3):1", 6),
    ("4:_", 2),
    ("4:", 2),
    ("_:1", 0),
    ("(2,_):(1,2)", 3),
    ("1@0:1", 1),
    ("<8>:1", 0),
    ("8:(1:1)", 4),
    ("8:ptr[16b](0x10)", 2),
    ("1@", 2),
    ("1@-1", 2),
    ("Sw<3,4", 6),
    ("Sw<3,4,3", 8),
    ("Sw<3,4,-3 o 0 o 8:1", 10),
    ("S<3,10,-", 7),
    ("S<3,10,1", 0),
    ("S<3,4,3 o 0 o 8:1", 8),
    ("Sw<3,4,1>", 0),
    ("(8,Sw<-1,4,3>)", 3),
    ("Sw<3,4,3> o 0", 13),
    ("Sw<3,4,3> o 0 o", 15),
    ("8:1 o 0 o 4", 10),
    ("8 o 0 o 4:1", 0),
    ("8:1 o _ o 4:1", 6),
    ("8:1 o 2:1 o 4:1", 6),
    ("Sw<3,4,3> o gmem_ptr[16b](0x10) o 8:1", 12),
    ("Sw<3,4,3> o Sw<3,4,3>_smem_ptr[16b](0x10) o 8:1", 12),
    ("gmem_ptr[16b](0x10)", 19),
    ("Sw<3,4,3>_smem_ptr[16b](0x10)", 29),
    ("Sw<3,4,3>_gmem_ptr[16b](0x10) o 8:1", 9),
    ("(ptr[16b](0x10),3)", 15),
    ("smem_ptr[16b](where)", 0),
    ("tensor<ptr<f32, smem> o 8:1", 27),
    ("tensor<ptr<f, smem, S<3,4,3>> o 8:1>", 7),
    ("(?,4):(1,?)", 1),
    ("(4,4):(?{i64 div=8},1)", 7),
    ("(" + "9" * 5000 + ",1)", 1),
]


@pytest.mark.parametrize(("value", "text"), PAIRS, ids=[text for _, text in PAIRS])
def test_writes_and_reads_the_same_text(value: Any, text: str) -> None:
    assert to_text(value) == text
    assert parse(text) == value
    assert type(parse(text)) is type(value)
    if isinstance(value, Layout | ScaledBasis | Swizzle | SmemPtr | ComposedLayout):
        assert str(value) == text


@pytest.mark.parametrize(("foreign", "ours"), FOREIGN, ids=[foreign for foreign, _ in FOREIGN])
def test_reads_what_other_tools_print(foreign: str, ours: str) -> None:
    assert to_text(parse(foreign)) == ours


@pytest.mark.parametrize(("text", "position"), REJECTED, ids=[text[:60] for text, _ in REJECTED])
def test_refuses_with_a_caret_under_the_offender(text: str, position: int) -> None:
    with refuses(ParseError) as caught:
        parse(text)
    assert (caught.value.text, caught.value.position) == (text, position)
    shown, caret = str(caught.value).splitlines()[-2:]
    if text:
        assert shown.strip() == text.strip()
        indent = len(shown) - len(text) if not text.isspace() else 0
        assert caret.index("^") == indent + position


def test_tuple_types_do_not_blur() -> None:
    assert parse("4") == 4
    assert parse("(4)") == (4,)
    assert parse("4:1") != parse("(4):(1)")


@pytest.mark.parametrize("value", [True, 1.5, "4", [1, 2], (1, True), object(), {1: 2}])
def test_writes_nothing_else(value: object) -> None:
    with refuses(TypeError):
        to_text(value)


def test_writes_subclasses_of_its_types() -> None:
    class Size(int):
        pass

    class Pair(tuple[int, ...]):
        __slots__ = ()

    assert to_text(Pair((Size(3), 4))) == "(3,4)"


@pytest.mark.parametrize("text", [b"4", 4, None])
def test_reads_nothing_but_text(text: object) -> None:
    with refuses(TypeError):
        parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["(" * 10_000, "<" * 10_000 + ">" * 10_000, "Sw<0,0,0> o 0 o " * 5_000 + "4:1"])
def test_nesting_beyond_the_stack_is_an_error_of_the_text(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


# Properties

integers = st.integers(-(2**40), 2**40)
extents = st.integers(0, 2**20)
bases = st.builds(ScaledBasis, integers, st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple))
shapes = st.recursive(extents, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)
int_tuples = st.recursive(integers | bases, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)


def strides_like(shape: Any) -> st.SearchStrategy[Any]:
    """Draw strides congruent to `shape`."""
    return st.tuples(*map(strides_like, shape)) if isinstance(shape, tuple) else integers | bases


layouts = shapes.flatmap(lambda shape: st.builds(Layout, st.just(shape), strides_like(shape)))
swizzles = st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(0, 5), st.booleans()).map(
    lambda t: Swizzle(t[0], t[1], -(t[0] + t[2]) if t[3] else t[0] + t[2])
)
plain = shapes.flatmap(lambda s: st.builds(Layout, st.just(s), integer_strides_like(s)))
pointers = st.builds(SmemPtr, st.sampled_from([1, 4, 8, 16, 32, 64]), st.none() | st.integers(0, 2**47))


def integer_strides_like(shape: Any) -> st.SearchStrategy[Any]:
    """Draw integer strides congruent to `shape`."""
    return st.tuples(*map(integer_strides_like, shape)) if isinstance(shape, tuple) else integers


composed = st.recursive(
    st.builds(ComposedLayout, swizzles, integers | pointers, plain),
    lambda inner: st.builds(ComposedLayout, inner | swizzles | plain, integers, inner | plain),
    max_leaves=3,
)
leaves = int_tuples | st.none() | layouts | swizzles | composed | pointers
values = leaves | st.recursive(leaves, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@given(values)
def test_parse_inverts_to_text(value: Any) -> None:
    text = to_text(value)
    again = parse(text)
    assert again == value
    assert to_text(again) == text


@given(values, st.data())
def test_space_between_symbols_means_nothing(value: Any, data: st.DataObject) -> None:
    pieces = re.findall(r"\w*mem_ptr\[.*?\)|Sw<|-?\w+|\W", to_text(value))
    blanks = data.draw(st.lists(st.sampled_from(["", " ", "\n ", "\t"]), min_size=len(pieces), max_size=len(pieces)))
    spaced = "".join(piece + blank for piece, blank in zip(pieces, blanks, strict=True))
    assert parse(spaced) == value


def parses_or_says_why(text: str) -> None:
    """Whatever the text, parse gives a value that survives the round trip, or a ParseError within the text."""
    try:
        value = parse(text)
    except ParseError as error:
        reason = error
    else:
        assert parse(to_text(value)) == value
        return
    assert reason.text == text
    assert 0 <= reason.position <= len(text)


FRAGMENTS = [
    "(",
    ")",
    "<",
    ">",
    "[",
    "]",
    ";",
    ",",
    ":",
    "@",
    "_",
    "o",
    " o ",
    "0",
    "1",
    "-3",
    "64",
    "Sw<",
    "S<",
    "3,4,3>",
    "smem_ptr[16b](unset)",
    "_smem_ptr[8b](0x10)",
    "ptr[1b]((nil))",
    "tensor<",
    "ptr<f16, smem, align<8>>",
    "?",
    "&lt;",
    "&gt;",
    "None",
    "SW_1_2_3",
    "ArithTuple",
    "GMMA::DescriptorIterator",
    "{",
    "\n",
    "x",
]


@given(st.text(max_size=30) | st.lists(st.sampled_from(FRAGMENTS), max_size=16).map("".join))
@example("S<3,0,-3")
@example("<S<3,0,-3>")
@example("()o()o()")
@example("(" * 2000)
def test_garbage_raises_nothing_but_parse_error(text: str) -> None:
    parses_or_says_why(text)


@given(st.one_of(values.map(to_text), st.sampled_from([foreign for foreign, _ in FOREIGN])), st.data())
def test_damaged_text_raises_nothing_but_parse_error(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    parses_or_says_why(text[:at])
    parses_or_says_why(text[at:])
    parses_or_says_why(text[:at] + data.draw(st.sampled_from(FRAGMENTS)) + text[at:])
    parses_or_says_why(text[:at] + text[at + 1 :])


def test_every_prefix_of_the_forms_above() -> None:
    for text in itertools.chain((text for _, text in PAIRS), (foreign for foreign, _ in FOREIGN)):
        for end in range(len(text)):
            parses_or_says_why(text[:end])


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("(-4,8):(1,2)", 1),
        ("-4:1", 0),
        ("(2,(3,_-4)):(1,(2,6))", 6),
        ("Sw<3,4,3> o 0 o (8,-8):(1,8)", 19),
        ("<4,(2,-2):(1,4)>", 6),
        ("tensor<ptr<f16, gmem, align<16>> o (-64,8):(1,64)>", 36),
    ],
)
def test_extents_are_not_negative(text, position):
    with refuses(ParseError) as raised:
        parse(text)
    assert str(raised.value).splitlines()[-1] == " " * (2 + position) + "^"


def test_what_cute_makes_of_negative_strides_is_written_but_not_read():
    text = to_text(left_inverse(Layout((4,), (-1,))))
    assert text == "(-1,4):(0,1)"
    with refuses(ParseError):
        parse(text)


@pytest.mark.parametrize("text", ["(-4,8)", "(4,8):(-1,-4)", "(0,8):(1,4)", "4:-1", "(4):(-1)"])
def test_strides_and_coordinates_may_be_negative_and_extents_zero(text):
    assert to_text(parse(text)) == text


@pytest.mark.parametrize("text", ["1@-1", "1@-1@0", "1@0@-1"])
def test_the_modes_of_a_basis_are_not_negative(text):
    with refuses(ParseError):
        parse(text)


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_what_the_dsl_prints_is_read_on_bytes_once_the_width_is_told(bits: int) -> None:
    text = f"S<3,4,3> o 0 o (8,{1024 // bits}):({1024 // bits},1)"
    atom = sm90.gmma_layout_atom("K", "SW128", bits)  # type: ignore[arg-type]
    assert compare(parse(text, bits=bits), atom, bits=bits).title.startswith("all ")
    assert parse(f"sA: {text}", bits=bits) == parse(text, bits=bits)  # as pasted, with a name before it
    assert parse(text.replace("S<", "Sw<"), bits=bits) == parse(text.replace("S<", "Sw<"))
    assert compare(text, atom, bits=bits).title.startswith("all ")
    pointed = f"tensor<ptr<f{bits}, smem, align<1024>, S<3,4,3>> o (8,8):(8,1)>"
    assert parse(pointed, bits=bits) == parse(pointed)


@pytest.mark.parametrize("bits", [0, -16, True, "16"])
def test_a_width_is_a_positive_integer(bits: Any) -> None:
    with refuses(LayoutError):
        parse("S<3,4,3> o 0 o (8,64):(64,1)", bits=bits)


@pytest.mark.parametrize(
    "name",
    ["SM90_64x8x16_F32BF16BF16_SS", "SM75_U32x4_LDSM_N", "SM80_16x8x16_F32F16F16F32_TN", "UniversalCopy<uint64_t>"],
)
def test_an_atom_is_named_in_any_case(name: str) -> None:
    for spelt in (name, name.lower(), name.upper(), f" {name.swapcase()}\n"):
        assert parse(spelt).name == name
        assert parse_all(spelt).values[0].value.name == name
        assert render_text(picture_of(spelt)) == render_text(picture_of(name)) == render_text(picture_of(parse(name)))


def test_the_name_of_no_atom_is_an_error_of_the_text() -> None:
    for read in (parse, parse_all):
        with refuses(ParseError):
            read("sm90_64x8")
