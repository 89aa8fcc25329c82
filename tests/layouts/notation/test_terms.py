"""Types, calls and reprs are read by a grammar: each token has its part in the value, or is refused at its place."""

import itertools
import re

import pytest
from hypothesis import assume, given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    E,
    Layout,
    LayoutError,
    ScaledBasis,
    SmemPtr,
    Swizzle,
    make_identity_layout,
    parse,
    parse_all,
    sm90,
    to_text,
)
from cutepy.layouts.errors import ParseError
from cutepy.layouts.linear import parse_linear
from cutepy.layouts.notation.tokens import Tokens
from cutepy.layouts.notation.unknowns import RuntimeValue
from tests.layouts.linear.drawing import linear_layouts
from tests.layouts.notation import test_notation as drawn
from tests.messages import refuses

# (text, the value in the notation).
READ = [
    # C++ types, as compilers print them
    ("cute::Layout<cute::tuple<cute::C<64>, cute::C<8> >, cute::tuple<cute::C<1>, cute::C<64> > >", "(64,8):(1,64)"),
    ("cute::Layout<cute::tuple<cute::C<(int)64>>, cute::tuple<cute::C<(int)-1>>>", "(64):(-1)"),
    ("cute::Layout<cute::C<8>, cute::_1>", "8:1"),
    ("Layout<Shape<_8, Shape<_2, _4>>, Stride<_1, Stride<_8, _16>>>{}", "(8,(2,4)):(1,(8,16))"),
    ("Layout<Shape<_8, _4>>", "(8,4):(1,8)"),
    ("cute::ComposedLayout<cute::Swizzle<3,4,3>, cute::C<0>, cute::Layout<cute::tuple<cute::_8,cute::_64>,"
     " cute::tuple<cute::_64,cute::_1>>>", "Sw<3,4,3> o 0 o (8,64):(64,1)"),
    ("cute::ComposedLayout<cute::Swizzle<3, 4, 3>, cute::smem_ptr_flag_bits<16>, cute::Layout<cute::C<8>>>",
     "Sw<3,4,3> o smem_ptr[16b](unset) o 8:1"),
    ("cute::ComposedLayout<cute::Swizzle<3, 4, 3>, cute::smem_ptr_flag, cute::Layout<cute::C<8>>>",
     "Sw<3,4,3> o smem_ptr[1b](unset) o 8:1"),
    ("cute::Swizzle<2, 3>", "Sw<2,3,2>"),
    ("cute::Int<8>", "8"),
    ("cute::_128{}", "128"),
    ("cute::constant<int, 8>", "8"),
    ("std::integral_constant<unsigned long, 8ul>", "8"),
    ("cute::ScaledBasis<cute::C<3>, 0, 1>", "3@1@0"),
    ("cute::tuple<>", "()"),
    ("cute::tuple<cute::C<4>, cute::Underscore>", "<4,_>"),
    # C++ expressions
    ("make_layout(make_shape(Int<8>{}, _4{}), LayoutRight{})", "(8,4):(4,1)"),
    ("cute::make_layout(make_shape(8, 4))", "(8,4):(1,8)"),
    ("make_layout(make_layout(4, 2), make_layout(3, 5))", "(4,3):(2,5)"),
    ("composition(Swizzle<3,3,3>{}, Layout<Shape<_8,_64>,Stride<_64,_1>>{})", "Sw<3,3,3> o 0 o (8,64):(64,1)"),
    # the DSL, pycute and cutepy
    ("cute.make_layout((8,4), stride=(4,1))", "(8,4):(4,1)"),
    ("cute.make_layout(shape=(8, (2, 2)), stride=(4, (1, 2)))", "(8,(2,2)):(4,(1,2))"),
    ("cute.make_layout(8)", "8:1"),
    ("cute.make_layout((8), stride=(2))", "8:2"),
    ("cute.make_layout((8,), stride=(2,))", "(8):(2)"),
    ("cute.make_layout((4, 8), stride=(1 * 1, 8))", None),
    ("cute.make_layout((4, 8), stride=(cute.E(0), cute.E(1)))", "(4,8):(1@0,1@1)"),
    ("cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout((8, 64), stride=(64, 1)))",
     "Sw<3,4,3> o 0 o (8,64):(64,1)"),
    ("cute.make_ordered_layout((4, 8), order=(1, 0))", "(4,8):(8,1)"),
    ("cute.make_identity_layout((4, 8))", "(4,8):(1@0,1@1)"),
    ("Layout(shape=(4, 8), stride=(8, 1))", "(4,8):(8,1)"),
    ("Layout((4, 8) : (8, 1))", "(4,8):(8,1)"),
    # a shape and a stride by name, as programs print them
    ("shape=(4,8) stride=(8,1)", "(4,8):(8,1)"),
    ("shape (4, 8) stride (8, 1)", "(4,8):(8,1)"),
    ("shape: (4, 8), stride: (8, 1)", "(4,8):(8,1)"),
    ("x.shape=torch.Size([4, 8]) x.stride()=(8, 1)", "(4,8):(8,1)"),
    ("shape: [4, 8]\nstrides: [8, 1]", "(4,8):(8,1)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), READ, ids=[text for text, _ in READ])
def test_terms_are_read(text, value):
    if value is None:
        with pytest.raises(ParseError):
            parse(text)
        return
    assert to_text(parse(text)) == value
    assert to_text(parse(f"sA = {text}")) == value
    if len(value) > 6:
        paste = parse_all(f"error: no match\n  with A: {text}\ndone\n")
        assert [to_text(found.value) for found in paste.values] == [value]


def test_what_a_type_leaves_open():
    text = "cute::Layout<cute::tuple<int, cute::C<8>>, cute::tuple<cute::C<8>, cute::C<1>>>"
    (found,) = parse_all(text).values
    assert isinstance(found.value, RuntimeValue)
    assert parse(text, given=[4]) == Layout((4, 8), (8, 1))
    with refuses(ParseError):
        parse(text)


# (text, position of the caret, part of the message).
REFUSED = [
    ("(4,8):(8,1) + 5", 12, "no part of the value"),
    ("5 + (4,8):(8,1)", 0, "no part of the value"),
    ("2 * (4,8):(8,1)", 0, "no part of the value"),
    ("(4,8):(8,1))", 11, "no part of the value"),
    ("((4,8):(8,1)", 12, "','|')'"),
    ("(4,8):(8,1)]", 11, "no part of the value"),
    ("(4,8):(8,1)>", 11, "no part of the value"),
    ("(4,8):(8,1) }", 12, "no part of the value"),
    ('(4,8):(8,1)"', 11, "no part of the value"),
    ("(4,8):(8,1) words behind", 12, "no part of the value"),
    ("(4,8):(8,1)\nwords below", 12, "no part of the value"),
    ("words above\n(4,8):(8,1)", 0, "no part of the value"),
    ("(4,8):(8,1)\n+ 5", 12, "no part of the value"),
    ("tile=(2,2) layout=(4,8):(8,1)", 0, "no part of the value"),
    ("a=(4,8) b=(8,1)", 10, "another begins here"),
    ("0x10 (4,8):(8,1)", 0, "no part of the value"),
    ("_ (4,8):(8,1)", 0, "no part of the value"),
    ("ArithTuple(8,16) (_8,_8):(_1@0,_1@1)", 0, "no part of the value"),
    ("gmem_ptr[16b](0x10) (4,8):(8,1)", 0, "no part of the value"),
    ("SM90_64x64x16_F16F16F16_SS (4,8):(8,1)", 0, "no part of the value"),
    ("shape=(4,8) stride=(8,1) offset=5", 32, "another begins here"),
    ("shape=(4,8) stride=(8,1,2)", 0, "the same nesting"),
    ("shape=(4,8) stride=x", 19, "got 'x'"),
    ("shape=(4,8) strude=(8,1)", 19, "another begins here"),
    ("foo::Layout<C<4>>", 0, "got 'foo::Layout'"),
    ("Layout((4,8),(8,1),3)", 0, "too many positional arguments"),
    ("Layout((4,8),stride=(8,1),stride=(1,4))", 26, "stride is given twice"),
    ("Layout((4,8),strude=(8,1))", 0, "'strude'"),
    ("Layout(stride=(8,1))", 0, "'shape'"),
    ("Layout((4,8),(8,1)", 18, "',' or ')'"),
    ("Layout((4,8) (8,1))", 13, "',' or ')'"),
    ("Layout((4,8),(8,x))", 16, "got 'x'"),
    ("Layout((4,8),(8,'x'))", 0, "the stride must hold integers"),
    ("Layout(None,(8,1))", 0, "the shape must be"),
    ("Layout(shape=(4,8),(8,1))", 19, "an argument with a name"),
    ("Layout<C<4>, C<1>, C<1>>", 0, "too many positional arguments"),
    ("Layout<C<4>", 11, "',' or '>'"),
    ("cute::C<cute::C>", 15, "'<' after C"),
    ("cute::C<8>{5}", 11, "'}'"),
    ("constant<float, 8>", 9, "an integer type, got 'float'"),
    ("make_composed_layout(inner=Swizzle(3,4,3), offset=0, outer=Layout(8))", 0, "by position"),
    ("composition(Layout(8), Layout(4))", 0, "compute others with composition"),
    ("Swizzle(3,4)", None, ""),
    ("Swizzle(3,4,1)", 0, "abs(shift) must be >= bits"),
    ("LinearLayout([1], [2])", 0, "bases must be a dictionary"),
    ("LinearLayout({'i': 1}, {'o': 2})", 0, "must be a list of bases"),
    ("LinearLayout({'i': [[1]], 'i': [[1]]}, {'o': 2})", 26, "i is given twice"),
    ("LinearLayout({'i': [[1]]}, {'o': True})", 0, "must be a power of two, got True"),
    ("LinearLayout({'i': [[1]]}, {'o': (2, 2)})", 0, "must be a power of two, got (2, 2)"),
    ("LinearLayout({'i': [[1]]}, {'o': None})", 0, "must be a power of two, got None"),
    ("SwizzledSharedLayout(True,1,1,[0])", 0, "vec must be an integer, got True"),
    ("SwizzledSharedLayout(1,None,1,[0])", 0, "must be an integer, got None"),
    ("SwizzledSharedLayout(1,1,(1,1),[0])", 0, "must be an integer, got (1, 1)"),
    ("DistributedLinearLayout([[True,0]],[],[],[],[2,2])", 0, "a list of integers, got [True, 0]"),
    ("DistributedLinearLayout([None],[],[],[],[2,2])", 0, "a list of integers, got None"),
    ("DistributedLinearLayout([[1]],[],[],[],[2,2])", 0, "got ranks [1, 2]"),
    ('Layout((4,8),"a")', 0, "the stride must hold integers"),
    ("make_swizzle(True,4,3)", 0, "must be an int"),
    ("Swizzle(True,4,3)", 0, "must be an integer, got True"),
    ("Swizzle(1,4,[3])", 0, "must be an integer, got [3]"),
    ("TiledMMA(Layout(4))", 0, "TiledMMA"),
    ("!cute.memref<f16, smem, align<8>, align<16>, \"(64,8):(1,64)\">", 34, "each once"),
    ("!cute.memref<f16, smem, align<8> \"(64,8):(1,64)\">", 33, "','"),
    ("raw_ptr(0x10: f16, smem, S<3,4,3>, S<2,4,3>) o (4,8):(8,1)", 35, "each once"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "position", "message"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_what_no_rule_consumes_is_refused_at_its_place(text, position, message):
    if position is None:
        assert parse(text) is not None
        return
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert any(part in str(caught.value) for part in message.split("|"))
    assert caught.value.position == position
    assert str(caught.value).splitlines()[-1].index("^") >= 2


@pytest.mark.parametrize(
    "text",
    [
        "sA: (4,8):(8,1)",
        "sA = (4,8):(8,1);",
        "sA (4,8):(8,1)",
        "`(4,8):(8,1)`",
        "'sA': '(4,8):(8,1)',",
        '"(4,8):(8,1)"',
        "// sA: (4,8):(8,1)",
        "/* (4,8):(8,1) */",
        "- layout of A -> (4,8):(8,1)",
        "1. sA: (4,8):(8,1)",
        "[thread 0, block 3] tAgA[0]: (4,8):(8,1)",
        "12:30:59 D kernel.cu(31): gC: (4,8):(8,1)",
        "stage 2: (4,8):(8,1)  // a comment",
        "# a comment\n(4,8):(8,1)\n# another",
        "(4,8):(8,1) =\n" + " 0 1 2 3 4 5 6 7\n" * 4,
    ],
)
def test_a_name_a_comment_and_a_table_may_stand_beside_a_value(text):
    assert parse(text) == Layout((4, 8), (8, 1))


def test_tuples_with_names_share_a_line():
    assert [(found.name, found.value) for found in parse_all("a=(4,8) b=(8,1)").values] == [
        ("a", (4, 8)),
        ("b", (8, 1)),
    ]


def test_brackets_around_several_values_are_no_part_of_them():
    assert parse_all("{\na = (4,8):(8,1)\nb = (4,2):(2,1)\n}").skipped == ()
    (mark,) = parse_all("; a = (4,8):(8,1)").skipped
    assert (mark.text, mark.position) == (";", 0)


def test_a_paste_tells_what_it_leaves_out():
    paste = parse_all(
        "tile=(2,2) x=3 sA: (4,8):(8,1) elements\np: ptr<f16, smem, align<1024>, S<3,4,3>>\nb: ptr<i64, smem>"
    )
    assert [(found.name, found.value) for found in paste.values] == [("sA", Layout((4, 8), (8, 1)))]
    assert [(skipped.text.strip(), skipped.why) for skipped in paste.skipped] == [
        ("tile=(2,2) x=3", "no value in it"),
        ("elements", "no value in it"),
        ("p: ptr<f16, smem, align<1024>, S<3,4,3>>", "a pointer without a layout"),
    ]
    assert paste.errors == ()


@pytest.mark.parametrize("behind", ["+ 5", ")", "]", "* 2", "@ 3", "- 1", "/ 2", "% 4"])
def test_what_would_change_a_value_of_a_paste_is_an_error(behind):
    paste = parse_all(f"sA: (4,8):(8,1) {behind}\nsB: (2,2):(1,2)")
    assert [found.name for found in paste.values] == ["sA", "sB"]
    assert [error.position for error in paste.errors] == [len("sA: (4,8):(8,1) ")]


MODULE = """#blocked = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32} {
  tt.func @f(%arg0: tensor<64x64xf16, #blocked> loc("f":9:14), %arg1: tensor<64xf16, #ttg.slice<{dim = 1, parent = #blocked}>>,
      %arg2: !ttg.memdesc<64x64xf16, #shared, #smem, mutable>) {
    tt.return loc(#loc6)
  } loc(#loc1)
}
"""  # noqa: E501 - as Triton prints it


def test_a_module_of_triton_s_is_read():
    paste = parse_all(MODULE)
    assert paste.errors == ()
    assert [(found.name, tuple(found.value.in_dims), found.value.out_dims) for found in paste.values] == [
        ("arg0", ("register", "lane", "warp", "block"), {"dim0": 64, "dim1": 64}),
        ("arg1", ("register", "lane", "warp", "block"), {"dim0": 64}),
        ("arg2", ("offset", "block"), {"dim0": 64, "dim1": 64}),
    ]


SWIZZLED = "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"
OF_POINTERS = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>"


@pytest.mark.parametrize("behind", ["", ", 3x64x64", ", 64x64", ", 64x128", ", 2x3x64x64"])
@pytest.mark.parametrize("mutable", ["", ", mutable"])
def test_the_allocated_shape_is_no_part_of_a_descriptor_s_layout(mutable, behind):
    whole = parse(f"!ttg.memdesc<64x64xf16, {SWIZZLED}, #smem>")
    text = f"!ttg.memdesc<64x64xf16, {{}}, #smem{mutable}{behind}>"
    assert parse(text.format(SWIZZLED)) == whole
    assert parse(text.format(SWIZZLED).replace("<", "&lt;").replace(">", "&gt;")) == whole
    (found,) = parse_all(f"#shared = {SWIZZLED}\n%a = ttg.f : {text.format('#shared')} -> i32").values
    assert found.value == whole


@pytest.mark.parametrize("behind", ["3x64x32", "64", "3x", "3x64x64, mutable", "x3"])
def test_an_allocated_shape_that_cannot_hold_the_view_is_an_error(behind):
    with pytest.raises(ParseError):
        parse(f"!ttg.memdesc<64x64xf16, {SWIZZLED}, #smem, mutable, {behind}>")


@pytest.mark.parametrize("element", ["!tt.ptr<f16>", "!tt.ptr<bf16, 1>", "!tt.ptr< f8E5M2 >"])
def test_a_tensor_of_pointers_has_the_layout_of_its_encoding(element):
    text = f"tensor<64x64x{element}, {{}}>"
    assert parse(text.format(OF_POINTERS)) == parse(f"tensor<64x64xf16, {OF_POINTERS}>")
    paste = parse_all(f"#blocked = {OF_POINTERS}\n%a = tt.load %p : {text.format('#blocked')} loc(#loc3)")
    assert [found.value for found in paste.values] == [parse(text.format(OF_POINTERS))]
    assert paste.errors == ()


def test_types_in_a_compiler_s_message_are_read():
    layout = "cute::Layout<cute::tuple<cute::C<8>, cute::C<4>>, cute::tuple<cute::C<4>, cute::C<1>>>"
    paste = parse_all(f'instantiation of "void f(const {layout} &) [with T={layout}]" at line 15\nnote: "{layout}"')
    assert [found.value for found in paste.values] == [Layout((8, 4), (4, 1))] * 3
    assert paste.errors == ()


@pytest.mark.parametrize(
    "text",
    ["-" * 5000, " " * 5000, "a, " * 2000, "a(b)" * 2000, "Layout(" * 3000, "cute::tuple<" * 3000, "shape=" * 3000,
     " - a=1 -> (1)\n" * 1000, "#ttg.slice<{dim=0, parent=" * 2000, "LinearLayout({" * 2000, "a=(4,8) " * 1000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_long_texts_end_in_a_value_or_an_error(text):
    for changed in (text, f"{text}!", f"{text} (4,8):(8,1)"):
        try:
            parse(changed)
        except LayoutError as error:
            assert isinstance(error, ParseError)


# Round trips

TILED = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x64x16_F32F16F16_SS"), Layout((2, 1, 1)))
VALUES = [
    Layout((4, 8), (8, 1)),
    Layout(4),
    make_identity_layout((4, (2, 8))),
    Swizzle(3, 0, -3),
    SmemPtr(16),
    SmemPtr(16, 0x400),
    ScaledBasis(3, (1, 0)),
    E(0),
    ComposedLayout(Swizzle(3, 4, 3), SmemPtr(8), Layout((8, 8))),
    sm90.gmma_layout_atom("K", "SW128", 16),
    TILED.traits,
    TILED,
    sm90.AccumulatorCoordinates(TILED, (128, 64)),
    sm90.universal_copy(128),
    sm90.ldmatrix_traits(4),
    sm90.SmemArray(4, 64),
    sm90.StagedTile((64, 64), 2, 16),
    sm90.TensorMap("f16", (512, 4096), (1024,), (64, 128), swizzle="SW128"),
    sm90.SmemPlan.of(sA=sm90.StagedTile((128, 64), 4, 16), full=sm90.SmemArray(4, bits=64)),
    parse("SM80_16x8x16_F32F16F16F32_TN"),
    parse("TiledCopy Tiler_MN: (_4,_8) TiledLayout_TV: ((_4,_2),_4):((_1,_16),_4)"),
]


@pytest.mark.parametrize("value", VALUES, ids=[f"{type(value).__name__}-{i}" for i, value in enumerate(VALUES)])
def test_a_repr_is_read_back(value):
    assert parse(repr(value)) == value
    assert type(parse(f"x = {value!r}")) is type(value)
    assert [found.value for found in parse_all(f"noise\n{value!r}\n").values] in ([value], [])


@given(drawn.layouts | drawn.swizzles | drawn.composed | drawn.pointers | drawn.bases)
def test_the_repr_of_any_value_is_read_back(value):
    assert parse(repr(value)) == value
    assert parse(str(value)) == value


@given(linear_layouts())
def test_any_linear_layout_is_read_back(layout):
    assert (
        parse(repr(layout)) == parse(str(layout)) == parse_linear(repr(layout)) == parse_linear(str(layout)) == layout
    )
    assert parse_linear(f"before:\n{layout}\n") == layout
    if layout.bases and any(layout.bases.values()) and list(layout.out_dims) == ["dim0", "dim1"]:
        alone = str(layout).partition("where out")[0]
        assert parse_linear(alone).bases == layout.bases


# Insertions

TEXTS = [
    *(text for text, value in READ if value is not None and "shape" not in text and value not in ("8", "128", "()")),
    "(4,8):(8,1)",
    "Sw<3,4,3> o 0 o (8,8):(1,8)",
    "tensor<ptr<f16, smem, align<1024>, S<3,4,3>> o (64,8):(1,64)>",
    "gmem_ptr[16b](0x7f00) o (4,8):(8,1)",
    "raw_ptr(0x400: f16, smem, align<128>) o (4,8):(8,1)",
    '!cute.memref<f16, smem, align<1024>, S<3,4,3>, "(64,8):(1,64)">',
    "ArithTuple(8,16) o (_8,_8):(_1@0,_1@1)",
    "#ttg.linear<{register = [[0, 1]], lane = [[0, 2]], warp = [], block = []}>",
    "DistributedLinearLayout(reg_bases=[[1, 0]], lane_bases=[[2, 0]], warp_bases=[], block_bases=[], shape=[4, 1])",
    " - register=1 -> (0, 1)\n   register=2 -> (8, 0)\n - lane=1 -> (0, 2)\n"
    "where out dims are: [dim0 (size 16), dim1 (size 4)]",
    "LinearLayout({'i': [[1], [2]]}, {'o': 4})",
]  # fmt: skip
INSERTED = (
    "5 -3 ( ) < > [ ] { } + * % & ~ ! ? ; | / \\ @ o _ ,, :: 0x10 +5 *2 foo=3 'x' x() (2,2) (2,2):(1,2) S<3,4,3>"
).split()
PIECE = re.compile(r"\w+|[^\w\s]")


@given(st.sampled_from(TEXTS), st.sampled_from(INSERTED), st.data())
def test_a_token_that_is_put_into_a_text_is_refused_or_means_something(text, inserted, data):
    places = [0, *(match.end() for match in PIECE.finditer(text))]
    at = data.draw(st.sampled_from(places))
    changed = f"{text[:at]} {inserted} {text[at:]}"
    before = parse(text)
    try:
        after = parse(changed)
    except LayoutError as error:
        assert isinstance(error, ParseError)
        assert 0 <= error.position <= len(changed)
        return
    ends = at == len(text) and (inserted == ";" or (inserted == "&" and text.endswith(">")))
    names = at == 0 and inserted in ("x()", "*")  # a name, and a bullet
    assert after != before or ends or names, changed


@given(st.sampled_from(TEXTS), st.data())
def test_a_token_that_is_taken_out_is_missed_or_meant_nothing(text, data):
    spans = [match.span() for match in PIECE.finditer(text)]
    start, end = data.draw(st.sampled_from(spans))
    changed = text[:start] + text[end:]
    before = parse(text)
    try:
        after = parse(changed)
    except LayoutError as error:
        assert isinstance(error, ParseError)
        return
    assume(text[start:end] not in ("-", "!", "_"))
    assert after != before or not re.fullmatch(r"\d+", text[start:end]), changed


def test_every_character_is_part_of_a_token():
    for text in itertools.chain(TEXTS, (text for text, _, _ in REFUSED)):
        tokens, covered = Tokens(text), 0
        while (token := tokens.advance()).kind != "end":
            assert not text[covered : token.start].strip()
            covered = token.end
        assert not text[covered:].strip()


BLOCKED = "#ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1]"


def test_a_parameter_of_an_attribute_may_stand_beside_its_braces_but_once():
    beside = parse(f"{BLOCKED}}}, order = [1, 0]>", shape=(64, 64))
    assert beside == parse(f"{BLOCKED}, order = [1, 0]}}>", shape=(64, 64))
    assert beside != parse(f"{BLOCKED}, order = [0, 1]}}>", shape=(64, 64))
    with refuses(ParseError):
        parse(f"{BLOCKED}, order = [1, 0]}}, order = [0, 1]>", shape=(64, 64))


def test_a_list_of_dimensions_is_of_names_only():
    with refuses(ParseError):
        parse("LinearLayout({'i': [1]}, ['o', 3])")
