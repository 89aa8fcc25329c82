"""`cutepy show`: what it prints, its files, its colours, and what it refuses."""

import errno
import os
import pty
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cutepy.cli import show
from cutepy.cli.app import app
from cutepy.layouts import sm90, tile_to_shape
from cutepy.layouts.render import draw_text, picture_of
from tests.layouts.render.readers import HtmlGrid, SvgGrid, read_latex, read_text
from tests.processor_time import takes_less

TILE = tile_to_shape(sm90.gmma_layout_atom("MN", "SW128", 16), (64, 64))


def invoke(*arguments, **environment):
    return CliRunner().invoke(app, ["show", *arguments], env={"COLUMNS": "80", **environment})


@pytest.mark.parametrize("width", [80, 140])
def test_the_issues_example(width):
    result = invoke("Sw<3,3,3> o 0 o ((64,2),(8,8)):((1,512),(64,1024))", "--bits", "16", "--banks", COLUMNS=str(width))
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= width
    layout = tile_to_shape(sm90.gmma_layout_atom("MN", "SW128", 16), (128, 64))
    cells = {place: cell for place, cell in read_text(result.output).items() if "..." not in (*place, cell)}
    assert len(cells) > 100
    for (row, column), bank in cells.items():
        assert int(bank) == layout(int(row), int(column)) * 2 // 4 % 32


def test_thread_values_of_a_tile():
    text = "((4,8,4),(2,2,1)):((128,1,16),(64,8,512))"
    cells = read_text(invoke(text, "--tv", "--tile", "(64,8)").output)
    assert cells["9", "3"] == "T5V3"
    assert len(cells) == 512
    assert read_text(invoke(text, "--tv").output)["0", ""] == "T0V0"


def test_atoms_by_name():
    output = invoke("SM90_64x8x16_F16F16F16_RS", "--operand", "C").output
    assert read_text(output)["0", "1"] == "T0V1"
    assert "ldmatrix" in invoke("SM75_U32x4_LDSM_N").output
    assert read_text(invoke("SM80_16x8x16_F32F16F16F32_TN", "--operand", "B").output)["7", "9"] == "T28V3"
    assert read_text(invoke("UniversalCopy<uint64_t>").output.partition("destination")[2])["0", "3"] == "T0V3"


def test_files_of_every_kind_at_once(tmp_path):
    svg, html, tex = (tmp_path / f"a.{suffix}" for suffix in ("svg", "html", "tex"))
    result = invoke("(2,3):(3,1)", "--svg", str(svg), "--html", str(html), "--tex", str(tex))
    assert (result.exit_code, result.output) == (0, "")
    assert SvgGrid(svg.read_text()).cells[1, 2] == "5"
    assert HtmlGrid(html.read_text()).cells()["1", "2"][0] == "5"
    assert read_latex(tex.read_text())[0][0][1, 2][0] == "5"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("(4,x)",), "       ^"[4:]),
        (("(4,8)",), "cannot draw (4, 8) of type tuple"),
        (("4:1", "--banks"), "banks need the width of an element; pass bits=16 or so"),
        (("4:1", "--bits", "0"), "bits must be a positive int, got 0"),
        (("4:1", "--tile", "4"), "--tile is the tile of a thread-value layout: it needs --tv"),
        (("(4,2):(1,4)", "--tv", "--tile", "4"), "the tile 4:1 has no element 4"),
        (("4:1", "--svg", "a.png"), "--svg takes a file that ends in .svg, got 'a.png'"),
        (("4:1", "--html", "/nowhere/a.html"), "No such file or directory"),
        (("SM90_64x8x16_F16F16F16_RS", "--operand", "D"), "operand must be one of A, B, C, got 'D'"),
        (("SM80_16x8x16_F32F16F16_TN",), "nearest is SM80_16x8x16_F32F16F16F32_TN"),
        (("SM80_CP_ASYNC_CACHEGLOBAL<uint64_t>",), ".cg copies 128 bits, got 64"),
        (("4:1", "--operand", "A"), "--operand is A, B or C of an MMA: name one"),
        (("SM90_64x8x16_F16F16F16_RS", "--banks"), "unexpected keyword argument 'banks'"),
    ],
)
def test_wrong_input_is_told(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert message in result.stderr


def on_a_terminal(environment):
    """The text that the command writes to a terminal."""
    leader, follower = pty.openpty()
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "cutepy", "show", "(2,4):(4,1)", "--bits", "32"]
    with subprocess.Popen(
        command, stdout=follower, env={**kept, "TERM": "xterm-256color", "COLUMNS": "80", **environment}
    ) as process:
        os.close(follower)
        written = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            written += part
        assert process.wait() == 0
    os.close(leader)
    return written.decode().replace("\r\n", "\n")


def test_terminals_get_colours_unless_told_otherwise():
    coloured = on_a_terminal({"COLORTERM": "truecolor"})
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert plain == on_a_terminal({"NO_COLOR": "1"}) == invoke("(2,4):(4,1)", "--bits", "32").output
    assert "48;2;119;170;221" in coloured  # #77AADD behind the first unit of a line


def test_pipes_get_plain_text_and_may_ask_for_colours():
    assert "\x1b" not in invoke("(2,4):(4,1)").output
    assert "\x1b" in invoke("(2,4):(4,1)", FORCE_COLOR="1", TERM="xterm").output


def test_every_style_is_known_to_the_terminal():
    for value in (TILE, picture_of("SM75_U32x4_LDSM_N")):
        assert {span.style for span in draw_text(picture_of(value)).spans} <= set(show.STYLES)


def test_a_swizzled_tile_is_drawn_in_time():
    assert "too many here" in invoke(str(TILE), "--bits", "16").output
    assert takes_less(0.25, "-m", "cutepy", "show", str(TILE), "--bits", "16")


def test_a_reader_that_has_enough_is_no_error(monkeypatch):
    def closed(*arguments):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(show, "paint", closed)
    assert invoke("4:1").stderr == ""
