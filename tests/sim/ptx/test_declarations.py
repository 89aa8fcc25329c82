"""PTX declarations and constant expressions are read or refused, and never dropped."""

import re
import struct
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cutepy.binaries.ptxas import AssemblyError, find_ptxas
from cutepy.sim.ptx import Address, Immediate, Parameter, Register, Symbol, Vector, parse_module
from cutepy.sim.ptx.constants import evaluate
from cutepy.sim.ptx.declarations import read_parameters, read_variables
from cutepy.sim.ptx.model import Reference
from cutepy.sim.ptx.names import Names
from cutepy.sim.ptx.parser import _check_section_value
from cutepy.sim.ptx.tokens import PtxSyntaxError, Tokens
from tests.messages import refuses

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>; .reg .f32 %f<4>;"
DTYPES = {f"{c}{8 * n}": f"{'i' if c == 's' else 'u'}{n}" for c in "bsu" for n in (1, 2, 4, 8)} | {
    "f32": "f4",
    "f64": "f8",
}


def module(outside="", body="", parameters=".param .u64 p0"):
    return f"{HEAD}{outside}\n.visible .entry k({parameters}) {{ {_REGISTERS}\n{body}\nret; }}\n"


def operand(text, outside="", opcode="mov.u32 %r1,"):
    """Read the last operand of an instruction."""
    (*_, instruction, _) = parse_module(module(outside, f"{opcode} {text};")).functions["k"].instructions
    return instruction.operands[-1]


# Variables, against numpy, and against the bytes that ptxas puts into a cubin.


@st.composite
def declarations(draw):
    """Draw a declaration of variables, and name, values, and alignment of each; None for values that are not given."""
    kind = draw(st.sampled_from(sorted(DTYPES)))
    dtype = np.dtype(DTYPES[kind])
    vector = draw(st.sampled_from([0, 0, 0, 2, 4])) if dtype.itemsize < 8 else 0
    align = draw(st.sampled_from([0, 0, 8, 16, 64]))
    space = draw(st.sampled_from([".global", ".const", "\n.global\t"]))
    expected, texts = [], []
    for number in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
        given = draw(st.booleans())
        values = np.zeros((*shape, vector) if vector else shape, dtype)
        name = f"v{draw(st.integers(0, 10**9))}_{number}$"
        extents = "".join(draw(st.sampled_from(["[{}]", "[ {} ]"])).format(e) for e in shape)
        if shape and given and draw(st.booleans()):
            extents = "[]" + "".join(f"[{e}]" for e in shape[1:])
            tree = _fill(draw, values, (), bool(vector), True, True)
        else:
            tree = _fill(draw, values, (), bool(vector), True, False) if given else None
        texts.append(f"{name}{extents}" + (f" = {tree}" if given else ""))
        expected.append((name, values, align or dtype.itemsize * (vector or 1)))
    linking = draw(st.sampled_from([".visible ", ".visible ", ".weak "]))
    words = f"{linking}{space} {f'.align {align} ' if align else ''}{f'.v{vector} ' if vector else ''}.{kind} "
    return words + draw(st.sampled_from([",", " , ", ",\n"])).join(texts) + ";", expected


def _fill(draw, values, at, last_is_vector, is_last, is_complete):
    """Draw initial values, and put them into an array; the last of all may be missing, but not of a vector."""
    axis = len(at)
    if axis == values.ndim:
        text, value = draw(_values(values.dtype))
        values[at] = value
        return text
    count = values.shape[axis]
    if is_last and not (is_complete or (last_is_vector and axis == values.ndim - 1)):
        count = draw(st.integers(1, count))
    items = [_fill(draw, values, (*at, n), last_is_vector, is_last and n == count - 1, False) for n in range(count)]
    return "{" + ", ".join(items) + "}"


def _values(dtype):
    if dtype.kind == "f":
        bits = 8 * dtype.itemsize
        written = st.integers(-99, 99).map(lambda n: (f"{n / 8}", n / 8))
        exact = st.integers(-99, 99).map(
            lambda n: (
                f"0{'f' if bits == 32 else 'D'}{int(np.array(n / 8, dtype).view(f'u{bits // 8}')):0{bits // 4}X}",
                n / 8,
            )
        )
        return st.one_of(written, exact)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    forms = [str, hex, lambda n: f"({n}+1)-1", lambda n: f"~{~n}" if n < 0 else f"-(-{n})"]
    return st.tuples(st.integers(max(low, -(2**62)), min(high, 2**62)), st.sampled_from(forms)).map(
        lambda x: (x[1](x[0]), x[0])
    )


@given(declarations())
@settings(deadline=None)
def test_variables(declaration):
    text, expected = declaration
    found = read_variables(text)
    assert [v.name for v in found] == [name for name, _, _ in expected]
    for variable, (_, values, alignment) in zip(found, expected, strict=True):
        assert variable.size_bytes == values.nbytes
        assert variable.alignment == alignment
        assert (variable.initial or b"").ljust(values.nbytes, b"\0") == values.tobytes()


def assembled(text, tmp_path):
    """Return the cubin that ptxas makes, or what it says."""
    try:
        tool = find_ptxas()[0]
    except AssemblyError as error:
        pytest.skip(str(error))
    source, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(text)
    done = subprocess.run([tool, "-arch=sm_90a", source, "-o", cubin], capture_output=True, text=True, check=False)
    return cubin.read_bytes() if done.returncode == 0 else done.stdout + done.stderr


def symbols(cubin):
    """Return size and bytes of each variable: ELF-64 sections, and their symbol table."""
    (start,), (count,) = struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<H", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + 64 * n) for n in range(count)]
    found = {}
    for _, kind, _, _, offset, size, link, *_ in sections:
        for at in range(offset, offset + size, 24) if kind == 2 else ():
            name, _, _, section, value, length = struct.unpack_from("<IBBHQQ", cubin, at)
            begin = sections[link][4] + name
            text = cubin[begin : cubin.index(b"\0", begin)].decode()
            if 0 < section < count:
                holder = sections[section]
                data = bytes(length) if holder[1] == 8 else cubin[holder[4] + value : holder[4] + value + length]
                found[text] = data
    return found


def test_variables_against_ptxas(tmp_path):
    drawn = []

    @given(declarations())
    @settings(max_examples=60, database=None, deadline=None, derandomize=True)
    def collect(declaration):
        drawn.append(declaration)

    collect()
    texts, names = [], set()
    for text, expected in drawn:
        own = {name for name, _, _ in expected}
        if not own & names:
            names |= own
            texts.append(text)
    cubin = assembled(module("\n".join(texts)), tmp_path)
    assert isinstance(cubin, bytes), cubin
    theirs = symbols(cubin)
    variables = parse_module(module("\n".join(texts))).variables
    assert {v.name for v in variables} == names
    for variable in variables:
        declared = next(text for text in texts if variable.name in text)
        assert theirs[variable.name] == (variable.initial or b"").ljust(variable.size_bytes, b"\0"), declared


# Constant expressions, against ptxas.

_OPERATORS = "+ - * / << >> < > <= >= == != & | ^ && ||".split()


@st.composite
def constants(draw, depth=3):
    """Draw a constant expression."""
    form = draw(st.integers(0, 6)) if depth else 0
    if form < 2:
        return draw(
            st.sampled_from(
                ["0", "1", "5", "077", "0x1f", "0b101", "7U", "4294967295", "0xFFFFFFFFFFFFFFFF", "WARP_SZ"]
            )
        )
    inner = constants(depth - 1)
    if form == 2:
        return draw(st.sampled_from(["-", "~", "!"])) + f"({draw(inner)})"
    if form == 3:
        return f"({draw(inner)} ? {draw(inner)} : {draw(inner)})"
    if form == 4:
        return f"{draw(st.sampled_from(['(.s64)', '(.u64)']))}({draw(inner)})"
    name = draw(st.sampled_from(_OPERATORS))
    right = draw(st.sampled_from(["1", "3", "2U"])) if name in ("/", "<<", ">>") else draw(inner)
    left = draw(inner)
    return f"{left} {name} {right}" if draw(st.booleans()) else f"({left} {name} {right})"


def test_constants_against_ptxas(tmp_path):
    drawn = set()

    @given(constants())
    @settings(max_examples=150, database=None, deadline=None, derandomize=True)
    def collect(text):
        drawn.add(text)

    collect()
    texts = sorted(drawn)
    outside = "\n".join(f".visible .global .u64 v{n} = {text};" for n, text in enumerate(texts))
    cubin = assembled(module(outside), tmp_path)
    assert isinstance(cubin, bytes), cubin
    theirs = symbols(cubin)
    for n, text in enumerate(texts):
        assert evaluate(text).value % 2**64 == int.from_bytes(theirs[f"v{n}"], "little"), text


@pytest.mark.parametrize(
    "text",
    [
        "1 + here",
        "-]",
        "(1 + 2",
        "(.s64 1)",
        "1 ? 2",
        "1 2",
    ],
)
def test_what_is_no_constant_is_said(text):
    with refuses(PtxSyntaxError):
        evaluate(text)


# Forms, each accepted by ptxas.

READ = [
    (".reg.b32 x;mov.b32 x,1;", ""),
    (".reg .b32 x,\n y; mov.b32 y, 1;", ""),
    (".reg .b32 x<2>, y; mov.b32 x1, y;", ""),
    (".shared .u32 a, b[2]; mov.u32 %r1, b;", ""),
    (".shared .align 8 .b8 a[2][4]; mov.u32 %r1, a+4;", ""),
    (".local .align 8 .b8 a[16], b[8]; mov.u64 %rd1, b;", ""),
    ("@ %p1 bra L; L:", ""),
    ("@ ! %p1 bra L; L:", ""),
    ('.pragma "nounroll";', '.pragma "nounroll";'),
    ("ld.global.u32 %r1, [a+4+4];", ".global .u32 a[4];"),
    ("ld.global.u32 %r1, a[2];", ".common .global .u32 a[4];"),
    ("mov.u32 %r1, g2;", ".shared .b32 g<3>;"),
    ("", '.section .foo { .b8 1, 2 }\n.file 1 "a//b.py"'),
    ("", ".weak .global .attribute(.managed) .u32 e = 1;"),
    ("", ".global .u32 q[4]; .global .u32 p[2] = {q, generic(q)+4};"),
]


@pytest.mark.parametrize(("body", "outside"), READ)
def test_forms_are_read(body, outside, tmp_path):
    parse_module(module(outside, body))
    assert isinstance(assembled(module(outside, body), tmp_path), bytes)


@pytest.mark.parametrize(
    ("body", "outside"),
    [
        ("", ".global .u32 a[2][3] = {1,2,3,4};"),
        ("", ".global .u32 a[3] = {1,2,3,4};"),
        ("", ".global .f32 a = 1;"),
        ("", ".global .u32 a = 1.5;"),
        ("", ".global .u32 a[2+1];"),
        ("", ".global .u32 a[];"),
        ("", '.global .b8 s[] = "abc";'),
        ("", ".global .u32 e .attribute(.managed);"),
        ("", ".global .oops a;"),
        ("", "oops;"),
        ("", ".shared .mbarrier m;"),
        ("add.s32 %r1, %r2,, %r3;", ""),
        ("mov.u32 %r1, 5,;", ""),
        ("mov.u32 %r1, 0x5u;", ""),
        ("mov.u32 %r1, 5 5;", ""),
        ("mov.u32 %r1, nobody;", ""),
        ("ld.global.u32 %r1, [nobody+8];", ""),
        ("@%p1bra L; L:", ""),
        (".oops .b32 x;", ""),
        (".shared .u32 a b;", ""),
        ("bra NOWHERE;", ""),
        ("mov.f32 %f1, -0f3F800000;", ""),
    ],
)
def test_what_ptxas_refuses_is_refused(body, outside, tmp_path):
    with pytest.raises(PtxSyntaxError):
        parse_module(module(outside, body))
    assert isinstance(assembled(module(outside, body), tmp_path), str)
    unread = []
    assert parse_module(module(outside, body), unread).functions["k"].instructions[-1].opcode == "ret"
    assert unread
    assert all(one.reason for one in unread)


def test_what_is_not_read_is_refused():
    with refuses(PtxSyntaxError):  # where the ISA and ptxas differ
        read_variables(".global .u32 a[2][3] = {{1}, {2, 3}};")
    with refuses(PtxSyntaxError):
        operand("%nobody")
    with refuses(PtxSyntaxError):
        operand("a[%r2]", ".shared .u32 a[4];", "ld.shared.u32 %r1,")


def test_what_is_not_read_is_listed_with_its_line():
    unread = []
    parse_module(".version 8.7\n.target sm_90a\n.address_size 64\n\n.global .u32 a = 1.5;\n", unread)
    assert [one.line for one in unread] == [5]


def test_initial_values_by_name():
    (variable,) = read_variables(".global .u32 a[2] = {WARP_SZ, WARP_SZ + 1};")
    assert np.frombuffer(variable.initial, np.uint32).tolist() == [32, 33]


@given(st.integers(0, 2**32 - 1), st.floats(width=32, allow_nan=False))
def test_floats_by_their_bits_keep_them_and_are_converted_to_another_type(word, value):
    single, double = np.float32(value).view(np.uint32), np.float64(value).view(np.uint64)
    texts = f"f32 a = 0f{word:08X}", f"f64 b = 0f{single:08X}", f"f64 c = 0d{double:016X}", f"f32 d = 0d{double:016X}"
    kept, widened, wide, narrowed = (read_variables(f".global .{text};")[0].initial for text in texts)
    assert kept == word.to_bytes(4, "little")
    assert widened == wide == double.tobytes()
    assert narrowed == single.tobytes()


@given(st.integers(0, 2**64 - 1), st.sampled_from([1, 2, 4, 8]))
def test_an_address_is_cut_to_its_bytes(address, size):
    reference = Reference("x", size_bytes=size)
    assert reference.encode(address) == address.to_bytes(8, "little")[:size]


# What operands stand for.


def test_operands():
    shared = ".shared .align 16 .u16 s[8];"
    assert operand("s[2]", shared) == Symbol("s", 4)
    assert operand("s+8", shared) == Symbol("s", 8)
    assert operand("s", shared) == Symbol("s")
    assert operand("s[1+2]", shared, "ld.shared.u16 %r1,") == Address(Symbol("s"), 6)
    assert operand("[s+2*3]", shared, "ld.shared.u16 %r1,") == Address(Symbol("s"), 6)
    for text, offset in {"[%rd1+-8]": -8, "[%rd1+(4*2)]": 8, "[%rd1+0x10]": 16, "[ %rd1 + 4 ]": 4, "[%rd1]": 0}.items():
        address = operand(text, "", "ld.global.u32 %r1,")
        assert isinstance(address.base, Register)
        assert address.offset == offset
    values = {"~0": -1, "(1<<4)|3": 19, "5U": 5, "010": 8, "!0": 1, "-1": -1, "WARP_SZ": 32, "0x1F": 31, "(.u64)5": 5}
    for text, value in values.items():
        assert operand(text) == Immediate(value)
    assert operand("1.0+2.0", "", "mov.f32 %f1,") == Immediate(0x4008000000000000, 64)
    assert operand("0f3F800000", "", "mov.f32 %f1,") == Immediate(0x3F800000, 32)
    assert operand("{5, ~6}", "", "st.global.v2.u32 [%rd1],") == Vector((Immediate(5), Immediate(-7)))


@pytest.mark.parametrize("length", [1, 40, 41, 100])
def test_of_what_is_no_token_forty_characters_are_shown(length):
    text = ("`" + "b" * 99)[:length]
    with pytest.raises(PtxSyntaxError) as caught:
        Tokens(f"(({text}")
    assert str(caught.value) == f"cannot read {text[:40]!r}"


def test_blocks_have_variables_of_their_own():
    function = parse_module(
        module(
            ".shared .u32 a;",
            "{ .shared .u32 a[2]; mov.u32 %r1, a; } { .shared .u32 a[7]; mov.u32 %r1, a; } mov.u32 %r1, a;",
        )
    ).functions["k"]
    sizes = {v.name: v.size_bytes for v in function.variables} | {"a": 4}
    assert [sizes[i.operands[1].name] for i in function.instructions[:3]] == [8, 28, 4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".param.u32 a", [("a", 4, 4, "u32")]),
        (".param .u32 a,.param.align 64 .b8 b[128]", [("a", 4, 4, "u32"), ("b", 128, 64, "b8")]),
        (".param .u64 .ptr .global .align 16 a, .param .u64 .ptr b", [("a", 8, 8, "u64"), ("b", 8, 8, "u64")]),
        (".param .align 8 .b8 a[2][4]", [("a", 8, 8, "b8")]),
        (".param .f32 a[2]", [("a", 8, 4, "f32")]),
        ("", []),
    ],
)
def test_parameters(text, expected):
    assert read_parameters(text) == tuple(Parameter(*one) for one in expected)


# Nothing is dropped: without any one of its tokens a module is another, or is refused.

_SAMPLE = module(
    ".global .align 16 .v2 .u32 g[4][2] = {{{1, 2}, {3, 4}}, {{5, 6}}}, h = {~7, 8};\n.const .u64 c = generic(g)+8;",
    """.shared .align 8 .b8 s[2][40], t[8]; .local .b32 l;
    @!%p1 add.s32 %r1, %r2, -5; mov.u32 %r3, s+8; mov.u32 %r3, t[3];
    setp.eq.and.u32 %p1|%p2, %r1, 1<<4, !%p3; ld.global.v2.u32 {%r1, %r2}, [%rd1+16];
    { .reg .b32 x<3>, y; mov.b32 x1, y; } L1: @%p1 bra L1;""",
    ".param .u64 .ptr .global .align 8 p0, .param .align 64 .b8 p1[128]",
)
_TOKEN = re.compile(r"\d+\.\d+|\.?[%\w$]+|<<|\S")
_MAY_MISS = {
    # What says nothing of the program: who may link to it, hints, and brackets of one thing.
    *".version 8.7 .visible .ptr .global .address_size 64".split(),
}


def test_no_token_is_dropped():
    whole = parse_module(_SAMPLE)
    kept = []
    for match in _TOKEN.finditer(_SAMPLE):
        try:
            rest = parse_module(_SAMPLE[: match.start()] + " " + _SAMPLE[match.end() :])
        except (PtxSyntaxError, AssertionError, LookupError, ValueError):
            continue
        if repr(rest) == repr(whole) and rest == whole:
            kept.append((match[0], _SAMPLE[max(0, match.start() - 20) : match.end() + 20]))
    unexpected = [one for one in kept if one[0] not in _MAY_MISS]
    assert not unexpected, "\n".join(map(str, unexpected))


def test_a_brace_too_many_closes_nothing():
    names = Names({}, {}, {})
    names.add_label("L", 0)
    with pytest.raises(AssertionError):
        names.close()
    names.rewind()
    assert names.label("L") == 0


@pytest.mark.parametrize(("of", "element", "size"), [("b32", 4, 4), ("v2 .b32", 4, 8), ("v4 .u8", 1, 4), ("f64", 8, 8)])
def test_numbered_variables_are_as_large_as_one(of, element, size):
    several, alone = (read_variables(f".shared .{of} {name};") for name in ("a<3>", "a"))
    assert [each.name for each in several] == ["a0", "a1", "a2"]
    assert {(each.size_bytes, each.element_bytes, each.alignment) for each in several} == {(size, element, size)}
    assert (alone[0].size_bytes, alone[0].alignment) == (size, size)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_values_of_sections_fit_their_bits(bits):
    for value in (0, 1, (1 << bits) - 1, -1, -(1 << bits - 1)):
        _check_section_value(str(value), str(bits))
    for value in (1 << bits, (1 << bits) + 1, -(1 << bits - 1) - 1)[-1 if bits == 64 else 0 :]:  # larger ones are cut
        with pytest.raises(PtxSyntaxError):
            _check_section_value(str(value), str(bits))
    if bits < 32:
        with pytest.raises(PtxSyntaxError):
            _check_section_value("label", str(bits))
    else:
        _check_section_value("label", str(bits))
