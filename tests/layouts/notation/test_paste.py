"""``parse_all``, and what ``parse`` reads beside the notation: prints of other tools as people paste them."""

import itertools

import pytest
from hypothesis import example, given, strategies as st

from cutepy.layouts import ComposedLayout, Layout, PrintedCopy, PrintedMMA, SmemPtr, Swizzle, parse, parse_all, to_text
from cutepy.layouts.errors import LayoutError, ParseError
from cutepy.layouts.notation.findings import Paste
from cutepy.layouts.notation.tokens import plain
from cutepy.layouts.notation.unknowns import RuntimeValue
from cutepy.layouts.render import picture_of
from tests.layouts.notation import prints
from tests.messages import pins, refuses

ESC = "\x1b"

# (a line as pasted, our text of the value, the name before it).
LINES = [
    # C++ CuTe
    ("counting_iter(0) o (4,8):(_1,4)", "(4,8):(1,4)", ""),
    ("counting_iter(5) o (4,8):(_1,4)", "Sw<0,4,3> o 5 o (4,8):(1,4)", ""),
    ("ArithTuple(_0,_0) o (4,_8):(_1@0,_1@1)", "(4,8):(1@0,1@1)", ""),
    ("ArithTuple(8,16) o (_8,_8):(_1@0,_1@1)", "(16,24):(1@0,1@1) o (8,16) o (8,8):(1@0,1@1)", ""),
    ("ArithTuple(_0,_1) o 8:1@0", "(8,2):(1@0,1@1) o (0,1) o 8:1@0", ""),
    ("gmem_subptr[4b](0x7ffd2345d240.0) o (16,_8):(_1,16)", "(16,8):(1,16)", ""),
    ("tCgC: gmem_ptr[16b](0x7f877a780000) o ((_2,_2),_2):((512,_8),_64)", "((2,2),2):((512,8),64)", "tCgC"),
    ("tCrC: ptr[16b](0x7feee1fffbe0) o ((_2,_2),_2):((_1,_2),_32)", "((2,2),2):((1,2),32)", "tCrC"),
    ("rmem_ptr[32b](0x7ffd) o (_2):(_1)", "(2):(1)", ""),
    ("tmem_[32b](0x0000.0040) o (_128,_64):(_65536,_1)", "(128,64):(65536,1)", ""),
    ("smem_ptr[16b](0x400) o (8,8):(1,8)", "(8,8):(1,8)", ""),
    ("sA = Sw<2,4,3>_smem_ptr[8b](0x400) o (_8,_64):(_64,_1)", "Sw<2,4,3> o smem_ptr[8b](0x400) o (8,64):(64,1)", "sA"),
    ("tCrA: GMMA::DescriptorIterator o (_1,_1,_4):(_0,_0,_2)", "(1,1,4):(0,0,2)", "tCrA"),
    ("tCrB: UMMA::DescriptorIterator o (_1,_1,_4):(_0,_0,_2)", "(1,1,4):(0,0,2)", "tCrB"),
    ("--t_tensor--((_32,_4),(_16,_4)):((_64,_2048),(_1,_16))", "((32,4),(16,4)):((64,2048),(1,16))", "t_tensor"),
    ("    //      * tAgA gmem_ptr[16b](0x7f5f) o (_2,4):(_1,_32)", "(2,4):(1,32)", "tAgA"),
    ("(tma_a) slayout:      (_8,_64):(_64,_1)", "(8,64):(64,1)", "(tma_a) slayout"),
    ("[thread 0, block 3] gA: gmem_ptr[16b](0x7f00) o (_4,2):(2,_1)", "(4,2):(2,1)", "[thread 0, block 3] gA"),
    # the DSL
    ("gA raw_ptr(0x0000781f44200400: f32, gmem, align<16>) o (128,8):(4098,1) =", "(128,8):(4098,1)", "gA"),
    (
        "raw_ptr(0x400: f16, smem, align<1024>, S<3,4,3>) o (8,64):(64,1)",
        "Sw<3,4,3> o smem_ptr[16b](0x400) o (8,64):(64,1)",
        "",
    ),
    ("tensor(raw_ptr(0x0000000000000400: f16, smem, align<1024>) o (8,8):(8,1), data=", "(8,8):(8,1)", ""),
    ("Tensor<0x000056479bd36cc0@gmem o (64,128):(128,1)>", "(64,128):(128,1)", ""),
    ('!cute.layout<"(8,4):(1,8)">', "(8,4):(1,8)", ""),
    ('!cute.composed_layout<"S<3,4,3> o 0 o (8,64):(64,1)">', "Sw<3,4,3> o 0 o (8,64):(64,1)", ""),
    ('cute.tile<"[8:1;(2,2):(1,4)]">', "<8:1,(2,2):(1,4)>", ""),
    (
        '!cute.memref<f16, smem, align<1024>, S<3,4,3>, "(64,8):(1,64)">',
        "Sw<3,4,3> o smem_ptr[16b](unset) o (64,8):(1,64)",
        "",
    ),
    ('!cute.memref<f32, gmem, "(64,8):(1,64)">', "(64,8):(1,64)", ""),
    ('!cute.coord_tensor<"(0,0)", "(8,8):(1@1,1@0)">', "(8,8):(1@1,1@0)", ""),
    ('tensor<OpResult(%200 = "cute.get_iter"(%199) : () -> !x) o (1,4):(0,2)>', "(1,4):(0,2)", ""),
    ("CuTeDSL DEBUG layout S<3,4,3> o 0 o (8,64):(64,1)", "Sw<3,4,3> o 0 o (8,64):(64,1)", "CuTeDSL DEBUG layout"),
    # terminals, pages, editors
    (f"{ESC}[1;32msA{ESC}[0m: {ESC}[36m(4,8):(8,1){ESC}[0m", "(4,8):(8,1)", "sA"),
    ("Sw<3,4,3> \u2218 0 \u2218 (8,8):(1,8)", "Sw<3,4,3> o 0 o (8,8):(1,8)", ""),
    ("\uff084\uff0c8\uff09\uff1a\uff088\uff0c1\uff09", "(4,8):(8,1)", ""),
    ("\ufeff(4,8):(\u22128,\u200b1)", "(4,8):(-8,1)", ""),
    ("SW<3,4,3> O _0 O (_8,_8):(_1,_8)", "Sw<3,4,3> o 0 o (8,8):(1,8)", ""),
    ("GMEM_PTR[16B](0X7F00) O (_4,8):(8,_1)", "(4,8):(8,1)", ""),
    ("(4,8):(8,1)  // row-major", "(4,8):(8,1)", ""),
    ("(4,8):(8,1)  <- row-major", "(4,8):(8,1)", ""),
    ("stage 2: S<2,4,3> o 0 o (4,8):(1,4)", "Sw<2,4,3> o 0 o (4,8):(1,4)", "stage 2"),
    ("12:30:45 INFO sA: (4,8):(8,1)", "(4,8):(8,1)", "12:30:45 INFO sA"),
]


@pytest.mark.parametrize(("line", "text", "name"), LINES, ids=[str(i) for i in range(len(LINES))])
def test_lines_as_they_are_pasted(line, text, name):
    assert to_text(parse(line)) == text
    (found,) = parse_all(line).values
    assert (to_text(found.value), found.name) == (text, name)
    twice = parse_all(f"{line}\n\n{line}")
    assert [(to_text(value.value), value.line, value.name) for value in twice.values] == [
        (text, 1, name),
        (text, 3, name),
    ]
    assert twice.errors == ()


def test_tensors_that_start_elsewhere_map_there():
    moved = parse("ArithTuple(8,16) o (_4,_8):(_1@0,_1@1)")
    assert {moved(i, j) for i in range(4) for j in range(8)} == {(8 + i, 16 + j) for i in range(4) for j in range(8)}
    assert parse("counting_iter(5) o (4,8):(_1,4)")(3, 7) == 5 + 31


@pytest.mark.parametrize(("name", "text"), prints.ALL.items(), ids=list(prints.ALL))
def test_printed_mmas_and_copies_with_all_that_surrounds_them(name, text):
    value = parse(text)
    assert isinstance(value, PrintedMMA if "MMA" in text else PrintedCopy)
    commented = "".join(f"  // {line}      // what it is\n" for line in text.splitlines())
    coloured = "".join(f"{ESC}[33m{line}{ESC}[0m\r\n" for line in text.splitlines())
    joined = " ".join(text.split())
    named = f"tiled = {{}} {text}"
    for changed in (text.upper(), text.lower(), commented, coloured, joined, named, f"\n\n{text}\n\n", text.strip()):
        again = parse(changed)
        assert again == value or str(again).lower() == str(value).lower()
    assert [found.value for found in parse_all(text * 3).values] == [value] * 3


def test_a_name_before_a_printed_mma():
    paste = parse_all(f"tiled_mma = {{}} {prints.DSL_SS}mma: {prints.CPP_RS}")
    assert [(found.name, type(found.value)) for found in paste.values] == [
        ("tiled_mma", PrintedMMA),
        ("mma", PrintedMMA),
    ]
    assert paste.skipped == ()


@pytest.mark.parametrize("before", ["", "step one\n", "a = b\n\nstep two of three\n", "note:\nother\n", "2:1\n"])
@pytest.mark.parametrize("label", ["mine", "my tile", "t1"])
def test_a_name_on_the_line_above_a_printed_mma(before, label):
    """The line above alone, whatever is before it."""
    paste = parse_all(f"{before}{label}:\n{prints.CPP_RS}")
    found = paste.values[-1]
    assert (found.name, found.value) == (label, parse(prints.CPP_RS))
    assert found.line == before.count("\n") + 2


def test_a_type_of_a_copy():
    text = """!cute.tiled_copy<!cute_nvgpu.atom.universal_copy<f32, 128 b>,
layout_copy_tv = <"((8,32),4):((128,1),32)">,
tiler_mn = <"[32:1;32:1]">>"""
    (found,) = parse_all(text).values
    assert found.value == PrintedCopy(
        layout_tv=Layout(((8, 32), 4), ((128, 1), 32)), tiler_mn=(Layout(32, 1), Layout(32, 1))
    )


@pytest.mark.parametrize("printed", [prints.CPP_CP_ASYNC, prints.DSL_LDMATRIX])
def test_a_printed_copy_has_the_width_of_its_elements(printed):
    assert parse(printed).bits == 16
    lines = [line for line in printed.split("\n") if "type" not in line.lower()]
    assert parse("\n".join(lines)).bits is None


def test_an_atom_and_then_a_tiling_are_two():
    for atom, tiling in ((prints.CPP_RS, prints.DSL_SS), (prints.DSL_LDMATRIX, prints.CPP_STMATRIX_C)):
        for texts in ((atom, tiling), (tiling, atom)):
            assert [found.value for found in parse_all("".join(texts)).values] == [*map(parse, texts)]
    mixed = prints.CPP_RS + prints.CPP_CP_ASYNC + prints.CPP_THR_MMA
    assert [str(found.value).split("\n")[0] for found in parse_all(mixed).values] == ["MMA_Atom", "ThrCopy", "ThrMMA"]


def test_fields_alone_are_layouts():
    text = "\n".join(prints.CPP_RS.splitlines()[3:])
    paste = parse_all(text)
    assert [(found.name, found.line) for found in paste.values] == [
        ("LayoutA_TV", 1),
        ("LayoutB_TV", 2),
        ("LayoutC_TV", 3),
    ]
    assert [str(skipped) for skipped in paste.skipped] == ["lines 1-3: of this MMA_Atom ThrID, Shape_MNK are missing"]


def test_what_a_copy_lacks_is_what_its_parts_begin():
    """An atom has a source and a destination, a tiling a tile and a layout; without any of them the atom is missed."""
    label = {"src_layout": "ValLayoutSrc", "dst_layout": "ValLayoutDst", "ref_layout": "ValLayoutRef"}
    label |= {"tiler_mn": "Tiler_MN", "layout_tv": "TiledLayout_TV"}
    value = {"tiler_mn": "(_16,_64)", "layout_tv": "((_8,_16),_8):((_128,_1),_16)"}
    halves = ({"tiler_mn", "layout_tv"}, {"src_layout", "dst_layout"})
    for count in range(1, len(label) + 1):
        for names in itertools.combinations(("tiler_mn", "layout_tv", "src_layout", "dst_layout", "ref_layout"), count):
            paste = parse_all("\n".join(f"{label[name]}: {value.get(name, '(_1,_8):(_0,_1)')}" for name in names))
            begun = [half for half in halves if half & set(names)] or [halves[1]]
            lacks = {label[name] for half in begun for name in half - set(names)}
            whys = [str(skipped) for skipped in paste.skipped if "missing" in str(skipped)]
            told = {name for why in whys for name in label.values() if name in why}
            assert (told, bool(whys)) == (lacks, bool(lacks)), names


SESSION = f"""launching <<<1, 128>>>
mA: gmem_ptr[16b](0x7f00) o (16,_8):(_1,16)
{prints.CPP_RS}
gmem_ptr[32b](0x7f10) o (_2,3,_2):(_1,_2,6):
  0.00e+00  2.00e+00 -4.00e+00
  1.00e+00  3.00e+00       nan
---------------
  6.00e+00  8.00e+00  1.00e+01
  7.00e+00  9.00e+00  1.10e+01
(_2,_4):(_4,_1)
       0    1    2    3
    +----+----+----+----+
 0  |  0 |  1 |  2 |  3 |
    +----+----+----+----+
 1  |  4 |  5 |  6 |  7 |
    +----+----+----+----+
t raw_ptr(0x00007ffe: f32, rmem, align<32>) o (4,8):(1,4) =
  ( 0.000000, 0.000000, [...] )
tensor(raw_ptr(0x00007ffe: f32, rmem, align<32>) o (2,3):(1,2), data= (
\t(0,0)= 1.500000
\t(1,0)= 1.500000
)
done in 3.5 ms"""


def test_a_session_of_prints():
    paste = parse_all(SESSION)
    assert paste.errors == ()
    assert [(found.line, found.name, found.bits) for found in paste.values] == [
        (2, "mA", 16),
        (3, "", None),
        (10, "", 32),
        (16, "", None),
        (23, "t", 32),
        (25, "", 32),
    ]
    assert [to_text(found.value) for found in paste.values if isinstance(found.value, Layout)] == [
        "(16,8):(1,16)",
        "(2,3,2):(1,2,6)",
        "(2,4):(4,1)",
        "(4,8):(1,4)",
        "(2,3):(1,2)",
    ]
    assert [(skipped.first, skipped.last, skipped.why) for skipped in paste.skipped] == [
        (1, 1, "no value in it"),
        (11, 15, "a table of values"),
        (17, 22, "a table of values"),
        (24, 24, "a table of values"),
        (26, 28, "a table of values"),
        (29, 29, "no value in it"),
    ]
    assert paste.values[0].notes == ("16-bit elements in gmem at 0x7f00",)


def test_numbers_are_read_where_nothing_else_is():
    assert [found.value for found in parse_all("(1,2)\n7\n(3,(4,5))").values] == [(1, 2), 7, (3, (4, 5))]
    assert [found.value for found in parse_all("shape: (4,8)\nsize = 32").values] == [(4, 8), 32]
    assert [found.value for found in parse_all("(4,8):(8,1)\n(0,1)\n  17").values] == [Layout((4, 8), (8, 1))]
    assert parse_all("coalesced 4 of 8\n4:1").values[0].value == Layout(4, 1)


# What must not be taken for a part of itself: (text, position of the caret, part of the message).
NOT_MISREAD = [
    ("gX: (4,x):(8,1)", 7),
    ("Sw<3,4,x> o 0 o (8,8):(1,8)", 7),
    ("Sw<3,4,3> o o (8,8):(1,8)", 12),
    ("what_ptr[16b](0x10) o (8,8):(1,8)", 0),
    ("sparse<2>_ptr[8b](unset) o (8,8):(1,8)", 0),
    ("((_64,_2),(_8,_8),_3)(_1,_512)", 21),
    ("(4,8):(8,1)x2", 11),
    ("(4,8):(8,1)(3)", 11),
    ("(4,8):(8,1):(1,2)", 11),
    ("8:(1:1)", 4),
    ("(_128,_64,K / BLK_K):(2048,_1,_64)", 10),
    ("(2,3:(1,2)", 5),
    ("tensor<foo<f16> o (8,8):(1,8)>", 7),
    ("((4,x), (8,8):(1,8))", 4),
    ("(4,8):(8,1) o", 13),
    ("gA: (4,8):(8,1) o 0 (2,2)", 20),
]


@pytest.mark.parametrize(("text", "position"), NOT_MISREAD, ids=[text for text, _ in NOT_MISREAD])
def test_no_part_of_a_broken_value_is_taken_for_the_value(text, position):
    with refuses(ParseError) as caught:
        parse(text)
    assert caught.value.position == position
    beside = f"(2,2):(1,2)\n{text}\n(3,3):(1,3)"
    paste = parse_all(beside)
    assert [to_text(found.value) for found in paste.values] in (
        ["(2,2):(1,2)", "(3,3):(1,3)"],
        ["(3,3):(1,3)"],  # where the broken text may go on from the line before
    ) or paste.errors
    if paste.errors:
        (error,) = paste.errors
        assert str(error).splitlines()[-2].strip() == text
    else:
        assert any(text in skipped.text for skipped in paste.skipped)


def test_an_error_shows_its_own_line():
    with pytest.raises(ParseError) as caught:
        parse("first: (2,2):(1,2)\nsecond: (4,x):(1,4)\n")
    assert str(caught.value).splitlines() == [
        "expected an integer, '_', '(', '<' or a swizzle, got 'x' at character 11 of line 2:",
        "  second: (4,x):(1,4)",
        "             ^",
    ]


def test_two_values_are_not_one():
    with refuses(ParseError) as caught:
        parse("a: (2,2):(1,2)\nb: (2,2):(1,2)")
    assert caught.value.position == len("a: (2,2):(1,2)\nb: ")


@pytest.mark.parametrize("text", ["", "  \n ", "hello world", "no layout\nin here, 3 of 4 lines\n", "+---+\n"])
def test_where_nothing_is_to_be_read_the_forms_are_told(text):
    with refuses(ParseError):
        parse_all(text)


@pytest.mark.parametrize("text", [b"4:1", 4, None])
def test_reads_nothing_but_text(text):
    with refuses(TypeError):
        parse_all(text)


# ---------------------------------------------------------------------------------------------------------------------
# What is known only at run time
# ---------------------------------------------------------------------------------------------------------------------


def test_what_a_text_leaves_open():
    (found,) = parse_all("gA: tensor<ptr<f16, gmem> o ((8,?),?{div=8}):((?{i64},1),?{i64 div=16})>").values
    value = found.value
    assert isinstance(value, RuntimeValue)
    assert (value.kind, found.bits) == ("Layout", 16)
    assert [(unknown.role, unknown.mode, unknown.divisor, unknown.bits) for unknown in value.unknowns] == [
        ("extent", (0, 1), 1, 32),
        ("extent", (1,), 8, 32),
        ("stride", (0, 0), 1, 64),
        ("stride", (1,), 16, 64),
    ]
    assert str(value.unknowns[3]) == "stride of mode 1: 64 bits, a multiple of 16"
    with refuses(ParseError):
        parse(value.text)
    assert to_text(parse(value.text, given=(4, 16, 2, 32))) == "((8,4),16):((2,1),32)"


def test_where_only_the_start_is_open_the_layout_is_known():
    (found,) = parse_all("tensor<(?{div=8},16) o (8,8):(1@0,1@1)>").values
    assert found.value(3, 4) == (3, 20)
    assert found.notes == ("it starts at ?{div=8}, known only at run time: taken as 0 here",)
    assert parse("tensor<(?{div=8},16) o (8,8):(1@0,1@1)>", given=[24])(3, 4) == (27, 20)
    assert parse("(4,8):(?,1)", given=[-(2**31)]) == Layout((4, 8), (-(2**31), 1))


@pytest.mark.parametrize(
    ("text", "given", "position"),
    [
        ("(?,8):(8,1)", (4, 5), 0),
        ("(?,?):(8,1)", (4,), 3),
        ("(?{div=8},8):(8,1)", (4,), 1),
        ("(?,8):(8,1)", (2**31,), 1),
        ("(4,8):(?,1)", (-(2**31) - 1,), 7),
        ("(?{i64},8):(8,1)", (2**63,), 1),
    ],
)
def test_values_that_contradict_the_text(text, given, position):
    with refuses(ParseError) as caught:
        parse(text, given=given)
    assert caught.value.position == position


def test_values_are_given_to_all_lines_in_turn():
    paste = parse_all("a: (?,8):(8,1)\nnoise\nb: (4,?):(?,1)", given=(2, 3, 5))
    assert [to_text(found.value) for found in paste.values] == ["(2,8):(8,1)", "(4,3):(5,1)"]
    with refuses(ParseError):
        parse_all("a: (?,8):(8,1)\nnoise\nb: (4,?):(?,1)", given=(2, 3, 5, 7))


# ---------------------------------------------------------------------------------------------------------------------
# Properties
# ---------------------------------------------------------------------------------------------------------------------

trees = st.recursive(st.integers(1, 64), lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=6)


def congruent(tree):
    return st.tuples(*map(congruent, tree)) if isinstance(tree, tuple) else st.integers(0, 4096)


ranked = trees.filter(lambda tree: isinstance(tree, tuple))
pairs = ranked.flatmap(lambda shape: st.tuples(st.just(shape), congruent(shape)))


def as_cpp(tree, static):
    """An IntTuple as C++ CuTe prints it: static integers after `_`."""
    if isinstance(tree, tuple):
        return "(" + ",".join(as_cpp(part, static) for part in tree) + ")"
    return f"_{tree}" if next(static) else str(tree)


def as_dsl(tree):
    return "(" + ",".join(map(as_dsl, tree)) + ")" if isinstance(tree, tuple) else str(tree)


@st.composite
def printed_tensors(draw):
    """(text, name, expected value) of a tensor as C++ or the DSL print it, written without the library."""
    shape, stride = draw(pairs)
    layout = Layout(shape, stride)
    static = itertools.cycle(draw(st.lists(st.booleans(), min_size=1, max_size=7)))
    cpp = f"{as_cpp(shape, static)}:{as_cpp(stride, static)}"
    dsl = f"{as_dsl(shape)}:{as_dsl(stride)}"
    address = draw(st.integers(1, 2**47))
    bits = draw(st.sampled_from([8, 16, 32]))
    base = draw(st.integers(0, 4))
    swizzled = ComposedLayout(Swizzle(2, base, 3), SmemPtr(bits, address), layout)
    unset = ComposedLayout(Swizzle(2, base, 3), SmemPtr(bits), layout)
    return draw(
        st.sampled_from(
            [
                (cpp, layout),
                (dsl, layout),
                (f"gmem_ptr[{bits}b]({address:#x}) o {cpp}", layout),
                (f"ptr[{bits}b]({address:#x}) o {cpp}:", layout),
                (f"gmem_subptr[4b]({address:#x}.0) o {cpp}", layout),
                (f"counting_iter(0) o {cpp}", layout),
                (f"Sw<2,{base},3>_smem_ptr[{bits}b]({address:#x}) o {cpp}", swizzled),
                (f"tensor<ptr<f{bits}, gmem, align<16>> o {dsl}>", layout),
                (f"tensor<ptr<f{bits}, smem, align<16>, S<2,{base},3>> o {dsl}>", unset),
                (f"raw_ptr({address:#018x}: f{bits}, rmem, align<32>) o {dsl} =", layout),
                (f"raw_ptr({address:#018x}: f{bits}, smem, align<32>, S<2,{base},3>) o {dsl}", swizzled),
                (f"Tensor<{address:#018x}@gmem o {dsl}>", layout),
                (f'!cute.memref<f{bits}, gmem, align<16>, "{dsl}">', layout),
            ]
        )
    )


names = st.sampled_from(
    ["", "sA: ", "tCrA = ", "gB ", "[0,3] tAgA: ", "stage 2: ", "layout of A -> ", "12:30:59 D kernel.cu(31): gC: "]
)
noise = st.sampled_from(
    [
        "",
        "launching kernel",
        "ptxas info    : 0 bytes gmem",
        "block 3, thread (0,1,0)",
        "tolerance 1.0e-3: passed",
        "========",
        "-- done --",
    ]
)


@given(st.lists(st.tuples(noise, names, printed_tensors()), min_size=1, max_size=4), st.data())
def test_every_tensor_of_a_log_is_found_and_nothing_else(entries, data):
    lines, expected = [], []
    for before, name, (text, value) in entries:
        if before:
            lines.append(before)
        line = f"{name}{text}"
        style = data.draw(st.sampled_from(["plain", "colour", "upper", "ring", "trailing"]))
        if style == "colour":
            line = f"{ESC}[1m{name}{ESC}[0m{text}{ESC}[0m"
        elif style == "upper":
            line = line.upper().replace("!CUTE", "!cute")
        elif style == "ring":
            line = line.replace(" o ", " \u2218 ")
        elif style == "trailing":
            line += "  // as expected"
        lines.append(line)
        expected.append((len(lines), value))
        if text.endswith((":", "=")):
            lines += ["  1.00e+00 -2.50e-01", "  0.00e+00       nan"]
    paste = parse_all("\n".join(lines))
    assert paste.errors == ()
    assert [(found.line, found.value) for found in paste.values] == expected


@given(pairs, st.sets(st.integers(0, 20)), st.data())
def test_numbers_left_open_and_given_again(pair, places, data):
    """Some leaves of a layout become `?`; given their values, the layout is the same."""
    counter, hidden = itertools.count(), []

    def written(tree):
        if isinstance(tree, tuple):
            return "(" + ",".join(map(written, tree)) + ")"
        if next(counter) not in places:
            return str(tree)
        hidden.append(tree)
        divisor = data.draw(st.sampled_from([d for d in (1, 2, 4, 8) if tree % d == 0]))
        return data.draw(st.sampled_from(["?", f"?{{div={divisor}}}", f"?{{i64 div={divisor}}}", "?{i64}"]))

    shape, stride = pair
    text = f"{written(shape)}:{written(stride)}"
    (found,) = parse_all(text).values
    assert parse(text, given=hidden) == Layout(shape, stride)
    if hidden:
        assert isinstance(found.value, RuntimeValue)
        assert len(found.value.unknowns) == len(hidden)
        assert [text[unknown.position] for unknown in found.value.unknowns] == ["?"] * len(hidden)
    else:
        assert found.value == Layout(shape, stride)


PIECES = [
    *("TiledMMA", "MMA_Atom", "ThrID: ", "Shape_MNK: ", "LayoutA_TV: ", "Tiler MN: ", "Value type: ", "16b", "f16"),
    *("(", ")", "<", ">", ":", ",", "o", "?", "_", "4", "-1", "x", "\n", " ", "sA: ", "= ", "0x10", "@", '"', ";"),
    *("(4,8):(8,1)", "Sw<3,4,3>", "gmem_ptr[16b](0x10) o ", "tensor<", "raw_ptr(0x10: f16, smem) o ", "OpResult("),
    *("counting_iter(", "ArithTuple(", "!cute.memref<", "data=", "1.0e+00", "?{div=0}", "\u2218", ESC + "[1m"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join) | st.text(max_size=40))
@example("LayoutA_TV: " * 3)
@example("(" * 2000)
@example("?{div=0}:1")
def test_any_text_gives_values_or_an_error_of_its_own(text):
    try:
        paste = parse_all(text)
    except LayoutError as error:
        assert isinstance(error, ParseError)
        assert 0 <= error.position <= len(text)
        return
    assert isinstance(paste, Paste)
    assert paste.values or paste.errors
    for found in paste.values:
        assert 1 <= found.line <= text.count("\n") + 1
        assert found.text in text


@given(st.text(st.sampled_from("(48):,\u2218\uff08\x1b[0m \u200b\u2212m")))
def test_plain_text_has_the_same_length(text):
    assert len(plain(text)) == len(text)


def test_what_is_said_to_be_skipped_was():
    paste = parse_all("hello\n(4,8):(8,1) foo bar\nsome words\nmore words\n")
    assert [str(found.value) for found in paste.values] == ["(4,8):(8,1)"]
    assert list(map(str, paste.skipped)) == [
        "skipped line 1, no value in it: hello",
        "skipped a part of line 2, no value in it: foo bar",
        "skipped lines 3-4, no value in it",
    ]


@pytest.mark.parametrize("printed", ["(4,8):(8,1)", prints.CPP_RS], ids=["a layout", "an MMA"])
def test_other_text_before_a_name_is_said_to_be_skipped(printed):
    paste = parse_all(f"three atoms (8 warps) of tiled = {printed}")
    assert [(found.value, found.name) for found in paste.values] == [(parse(printed), "tiled")]
    assert list(map(str, paste.skipped)) == ["skipped a part of line 1, no value in it: three atoms (8 warps) of"]


@pytest.mark.parametrize("before", ["", "!", "!cute.", "cute.", "%4 = make : ", "sA = "])
def test_types_of_the_ir_are_read_without_their_dialect(before):
    assert parse_all(f'{before}layout<"(4,8):(8,1)">').values[0].value == Layout((4, 8), (8, 1))
    text = f'{before}composed_layout<"S<3,4,3> o 0 o (8,64):(64,1)">'
    assert str(parse_all(text).values[0].value) == "Sw<3,4,3> o 0 o (8,64):(64,1)"
    assert parse('layout<"(4,8):(8,1)">') == Layout((4, 8), (8, 1))


def test_what_starts_elsewhere_is_not_called_swizzled():
    grid = picture_of("counting_iter(5) o (4,8):(8,1)")
    pins("\n".join(grid.caption))
