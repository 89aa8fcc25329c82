"""`cutepy parse`: pastes, their pictures at two widths, what texts leave open, and errors."""

import re

import pytest
from typer.testing import CliRunner

from cutepy.cli import parse as parse_command
from cutepy.cli.app import app
from cutepy.layouts import ParseError, parse
from cutepy.layouts.render import picture_of
from tests.layouts.notation import prints
from tests.layouts.render.readers import read_text
from tests.messages import pins

WIDTHS = pytest.mark.parametrize("width", [80, 140])


def invoke(*arguments, width=80, **options):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(width)}, **options)


def sections(output):
    """The output's parts, by their first lines."""
    return {part.splitlines()[0]: part for part in re.split(r"\n\n(?=line \d|skipped )", output)}


@WIDTHS
@pytest.mark.parametrize("command", ["parse", "show"])
@pytest.mark.parametrize("name", sorted(prints.ALL))
def test_printed_mmas_and_copies_are_drawn_at_once(command, name, width):
    text = prints.ALL[name]
    result = invoke(command, text, width=width)
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.output.splitlines())) <= width
    picture = picture_of(text)
    for grid in getattr(picture, "grids", (picture,)):
        assert all(word in result.output for word in grid.title.split())
    if command == "parse":
        described = result.output.split("\n\n")[0]
        assert described == str(parse(text))


@WIDTHS
def test_the_cells_of_an_operand(width):
    cells = read_text(invoke("show", prints.DSL_RS, "--operand", "A", width=width).output)
    for (row, column), cell in cells.items():
        lane, warp = 4 * (int(row) % 8) + int(column) % 8 // 2, int(row) // 16
        value = int(column) % 2 + 2 * (int(row) // 8 % 2) + 4 * (int(column) // 8)
        assert cell == f"T{32 * warp + lane}V{value}"
    assert len(cells) == 64 * 16


def test_input_that_is_not_utf_8_is_noise():
    result = invoke("parse", "-", input=b"caf\xe9 \xff\n(2,2):(2,1)\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert read_text(result.output)["1", "0"] == "2"
    assert invoke("show", "-", input=b"\xff(2,2)").exit_code == 2


@WIDTHS
def test_a_paste_of_several_lines(width):
    text = """\x1b[1msA\x1b[0m: Sw<3,4,3>_smem_ptr[16b](0x400) o (_8,_64):(_64,_1)
gC: gmem_ptr[32b](0x7f877a780000) o (_2,4):(4,_1):
  0.00e+00  1.00e+00  2.00e+00  3.00e+00
  4.00e+00  5.00e+00  6.00e+00  7.00e+00
kernel took 3.5 ms, as long as a line that has to be folded at a terminal's eighty columns, of which it has more
gD: tensor<ptr<f16, gmem> o (?{div=8},?):(?{i64 div=8},1)>
"""
    result = invoke("parse", "-", width=width, input=text)
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.output.splitlines())) <= width
    assert "\x1b" not in result.output
    parts = sections(result.output)
    assert list(parts) == ["line 1, sA:", "line 2, gC:", "line 6, gD:", "skipped lines 3-4, a table of values"]
    pins("\n".join(parts["line 1, sA:"].splitlines()[:4]))
    assert read_text(parts["line 2, gC:"])["1", "3"] == "7"
    pins("\n".join(line for line in result.output.splitlines() if line.startswith("skipped")))


def test_what_a_text_leaves_open_and_its_values():
    text = "gD: tensor<ptr<f16, gmem> o (?{div=8},4):(?{i64},1)>"
    result = invoke("parse", text)
    assert result.exit_code == 0
    pins(result.output)
    assert result.output.splitlines()[-1] == "--set 8,8"
    for command in ("parse", "show"):
        given = invoke(command, text, "--set", "8,5")
        assert read_text(given.output)["7", "3"] == "38"
    for values, message in [
        ("4,5", "?{div=8} is a multiple of 8, 4 is not"),
        ("8", "?{i64} is known only at run time; --set takes a value for each ?, and 1 were given"),
        ("8,5,6", "3 values are given for 2 ? in"),
        ("8,x", "--set takes integers with commas between, as 128,64,64; got '8,x'"),
    ]:
        refused = invoke("parse", text, "--set", values)
        assert refused.exit_code == 2
        assert message in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("text", "read_as", "caption"),
    [
        (
            "S<3,4,3> o 0 o (8,64):(64,1)",
            "Sw<3,3,3> o 0 o (8,64):(64,1)",
            "S<3,4,3> is read as the DSL means it, on byte",
        ),
        ("Sw<3,3,3> o 0 o (8,64):(64,1)", "Sw<3,3,3> o 0 o (8,64):(64,1)", "Sw<3,3,3> acts on offsets of elements"),
        (
            "sA: S&lt;3,4,3&gt; o 0 o (8,64):(64,1)",
            "Sw<3,3,3> o 0 o (8,64):(64,1)",
            "S<3,4,3> is read as the DSL means it, on byte",
        ),
    ],
)
def test_the_dsls_swizzle_is_of_bytes_once_the_width_is_told(text, read_as, caption):
    output = invoke("parse", text, "--bits", "16").output
    assert read_as in output.splitlines()
    assert caption in output
    cells = read_text(output)
    assert cells["1", "0"] == "72"


def test_without_the_width_the_dsls_swizzle_is_of_elements_and_doubtful():
    output = invoke("parse", "S<3,4,3> o 0 o (8,64):(64,1)").output
    assert "Sw<3,4,3> o 0 o (8,64):(64,1)" in output.splitlines()
    assert "where the DSL means bytes, tell the width of an element" in " ".join(output.split())


@WIDTHS
@pytest.mark.parametrize(
    ("text", "expected", "under"),
    [
        ("(4,8):(8,x)", "expected an integer", "x"),
        ("a: (2,2):(1,2)\nb: (4,8):(8,x)", "of line 2", "x"),
        (f"name: ({'2,' * 100}x):(1,2)", "got 'x'", "x"),
        ("good night", "what can be read: layouts such as (4,8):(8,1)", "g"),
    ],
)
def test_errors_fit_and_point_at_the_place(text, expected, under, width):
    result = invoke("parse", text, width=width)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert max(map(len, lines)) <= width + len("error: ")
    assert expected in " ".join(result.stderr.split())
    shown, caret = lines[-2:]
    assert shown[caret.index("^")] == under
    assert "Traceback" not in result.stderr


def test_a_long_line_is_cut_to_the_part_at_the_caret():
    """Dots stand for what is cut off: behind, before and behind, before, and nowhere."""
    texts = [f"({'2,' * before}x{',2' * behind}):(1,2)" for before, behind in ((0, 20), (10, 10), (20, 0), (3, 0))]
    for text in texts:
        with pytest.raises(ParseError) as caught:
            parse(text)
        for width in (12, 30, 49, 50):
            shown = parse_command.told(caught.value, width)
            *_, line, caret = shown.split("\n")
            assert line[caret.index("^")] == "x"
            pins(shown)


def test_what_can_be_read_is_shown_beside_what_can_not():
    result = invoke("parse", "a: (2,2):(1,2)\nb: (4,8):(8,x)")
    assert result.exit_code == 2
    assert "line 1, a:" in result.stdout
    pins(result.stderr)


def test_what_does_not_fit_together_is_told():
    result = invoke("parse", prints.CPP_LDMATRIX_A.replace("(_32,_8):(_8,_1)", "_32:_8"))
    assert result.exit_code == 2
    pins(result.stderr)
    result = invoke("parse", "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)", "--bits", "8")
    assert result.exit_code == 2
    pins(result.stderr)


def test_an_atom_is_drawn_as_show_draws_it():
    drawn = invoke("show", "SM90_64x8x16_F32BF16BF16_SS").output
    told = invoke("parse", "sm90_64x8x16_f32bf16bf16_ss").output
    assert told.startswith("SM90_64x8x16_F32BF16BF16_SS\nWgmmaTraits\n")
    assert told.endswith(drawn)


BLOCKED = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>"


@WIDTHS
@pytest.mark.parametrize(
    ("text", "shape", "told"),
    [
        ("#ttg.linear<{register = [[0, 1]], lane = [[0, 2]], warp = [], block = []}>", None, "register=1 -> (0, 1)"),
        (
            " - lane=1 -> (0, 2)\n - warp is a size 1 dimension",
            None,
            "where out dims are: [dim0 (size 1), dim1 (size 4)]",
        ),
        (BLOCKED, "64,64", "register=16 -> (32, 0)"),
        (f"#b = {BLOCKED}\n#ttg.slice<{{dim = 1, parent = #b}}>", "64", "register=1 -> (16)"),
        (
            "SwizzledSharedLayout(vec=8, per_phase=1, max_phase=8, order=[1, 0])",
            "64,64",
            "Sw<3,3,3> o 0 o (64,64):(64,1)",
        ),
        (
            f"tensor<64x64xf16, {BLOCKED}>",
            None,
            "LinearLayout: register 32, lane 32, warp 4, block 1 -> dim0 64, dim1 64",
        ),
    ],
)
def test_layouts_of_triton_are_described_and_drawn(text, shape, told, width):
    options = () if shape is None else ("--shape", shape)
    result = invoke("parse", text, *options, width=width)
    assert (result.exit_code, result.stderr) == (0, "")
    assert told in " ".join(result.output.split()) or told in result.output
    picture = invoke("show", text, *options, width=width)
    assert (picture.exit_code, picture.stderr) == (0, "")
    assert "a column for each bit of the inputs" in " ".join(picture.output.split())


@pytest.mark.parametrize("command", ["parse", "show"])
def test_a_shape_that_lacks_or_does_not_fit_is_told(command):
    for options, message in [
        ((), "this encoding describes tensors of any shape; --shape 64,64 tells one"),
        (("--shape", "64"), "the encoding has 2 dimensions, the shape 1"),
        (("--shape", "64,x"), "--shape takes integers with commas between"),
    ]:
        refused = invoke(command, BLOCKED, *options)
        assert refused.exit_code == 2
        assert message in " ".join(refused.stderr.split())
    refused = invoke(command, "(4,8):(8,1)", "--shape", "4,8")
    assert refused.exit_code == 2
    pins(refused.stderr)


@pytest.mark.parametrize("text", ["(4,8):(8,1) + 5", "(4,8):(8,1))"])
def test_what_would_change_a_layout_is_an_error(text):
    for command in ("parse", "show"):
        result = invoke(command, text)
        assert result.exit_code == 2
        pins(result.stderr)


def test_types_calls_and_reprs_are_drawn():
    for text in (
        "cute::Layout<cute::tuple<cute::C<4>, cute::C<8>>, cute::tuple<cute::C<8>, cute::C<1>>>",
        "cute.make_layout((4, 8), stride=(8, 1))",
        "Layout((4, 8),(8, 1))",
        "shape=(4,8) stride=(8,1)",
    ):
        output = invoke("parse", text).output
        assert output.splitlines()[0] == "(4,8):(8,1)"
        assert read_text(output)["3", "7"] == "31"
    told = invoke("parse", "SmemArray(count=4, bits=64, alignment_bytes=8)").output
    assert told.splitlines() == ["SmemArray(count=4, bits=64, alignment_bytes=8)", "SmemArray"]
