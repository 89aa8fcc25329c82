"""show and save, tensors, texts to draw, and what notebooks ask for."""

import math
import os
import subprocess
import sys
import types

import pytest
from hypothesis import given, strategies as st

import cutepy
from cutepy.layouts import (
    Layout,
    LayoutError,
    ParseError,
    Swizzle,
    compare,
    parse,
    save,
    show,
    sm90,
    sm100,
    tile_to_shape,
)
from cutepy.layouts.banks import bank_conflicts, warp_access
from cutepy.layouts.grids.grid import Picture
from cutepy.layouts.render import (
    layout_grid,
    picture_of,
    render_html,
    render_latex,
    render_svg,
    render_text,
    tensor_grid,
)
from cutepy.layouts.render.output import terminal_width
from cutepy.layouts.sm90 import arch
from cutepy.testing.strategies import any_layouts
from tests.layouts.render.readers import HtmlGrid, SvgGrid, read_latex, read_text
from tests.messages import refuses
from tests.processor_time import takes_less

SMEM = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (64, 64))
MMA = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x8x16_F16F16F16_SS"))
DRAWN = [
    Layout((4, 8)),
    sm90.gmma_layout_atom("MN", "SW128", 16),
    Swizzle(2, 0, 3),
    MMA,
    MMA.traits,
    sm90.ldmatrix_traits(4),
    sm90.stmatrix_traits(2, transpose=True),
    sm90.make_tma_copy(Layout((256, 64), (64, 1)), SMEM, dtype="f16"),
    sm90.GmmaDescriptorIterator(SMEM, major="K", bits=16, mma_shape=(64, 16)),
    sm90.GmmaDescriptorIterator(SMEM, major="K", bits=16, mma_shape=(64, 16))[0, 1],
    sm90.GmmaDescriptor.decode(0x4000004000000040),
    sm100.SmemDescriptor.decode(0x4000404000010040),
    sm100.SmemDescriptorIterator(SMEM, major="K", bits=16, mma_shape=(64, 16)),
    sm100.NarrowTensorMap("b4x16", (512, 128), (256,), (256, 128), swizzle="SW128"),
    sm100.InstrDescriptor("mxf4nvf4", 128, 64),
    sm100.tmem_accumulator(64, 32),
    sm100.tmem_scale_factors(128, 4),
    sm100.tmem_load_traits("16x64b", 2),
    sm100.tmem_cp_traits("32x128b.warpx4"),
    sm100.umma_traits("mxf8f6f4", 128, 32),
    sm100.TmemPlan.of(D=(sm100.tmem_accumulator(128, 128), 2), SFA=4),
]


PICTURES = [picture_of(Layout((2, 3))), compare(Layout((2, 3)), "(2,3):(3,1)")]


@pytest.mark.parametrize("value", [*DRAWN, *PICTURES], ids=lambda value: type(value).__name__)
def test_notebooks_show_every_object(value):
    assert HtmlGrid(value._repr_html_()).tables
    assert SvgGrid(value._repr_svg_()).cells


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("value", DRAWN, ids=lambda value: type(value).__name__)
def test_every_object_fits_the_terminal(value, width, capsys):
    show(value, width=width)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert any("|" in line for line in lines)


def test_what_cannot_be_drawn_is_shown_as_its_repr():
    assert sm90.GmmaDescriptor(0, 16, 16, base_offset=1, layout_type=1)._repr_html_() is None
    assert sm90.GmmaDescriptor(0, 16, 16, base_offset=1, layout_type=1)._repr_svg_() is None


@pytest.mark.parametrize("value", DRAWN, ids=lambda value: type(value).__name__)
def test_reprs_paste_back(value):
    names = {name: getattr(cutepy.layouts, name) for name in cutepy.layouts.__all__}
    names |= {name: getattr(room, name) for room in (sm90, sm100) for name in room.__all__}
    assert eval(repr(value), names) == value


@pytest.mark.parametrize("suffix", [".svg", ".html", ".tex", ".txt", ".SVG"])
def test_save_writes_what_the_suffix_says(tmp_path, suffix):
    layout = Layout((2, 3), (3, 1))
    path = tmp_path / f"picture{suffix}"
    save(layout, path)
    text = path.read_text(encoding="utf-8")
    numbers = sorted("012345")
    if suffix.lower() == ".svg":
        assert sorted(SvgGrid(text).cells.values()) == numbers
    elif suffix == ".html":
        assert sorted(cell for cell, _, _ in HtmlGrid(text).cells().values()) == numbers
    elif suffix == ".tex":
        assert sorted(cell for cell, _ in read_latex(text)[0][0].values()) == numbers
    else:
        assert text == render_text(picture_of(layout)) + "\n"


@pytest.mark.parametrize("name", ["picture.png", "picture", "picture.svgz", ""])
def test_other_suffixes_are_refused_before_anything_is_drawn(tmp_path, name):
    with refuses(ValueError):
        save(object(), tmp_path / name if name else "")


@pytest.mark.parametrize("value", [3.5, None, object(), [1, 2], {"a": 1}])
def test_what_has_no_picture_is_told(value):
    with refuses(TypeError):
        show(value)


def test_options_of_others_are_refused():
    with refuses(TypeError):
        show(Layout(4), colour="red")
    with refuses(TypeError):
        show(MMA, tv=True)
    with pytest.raises(ParseError):
        show("(4,8:")
    with refuses(LayoutError):
        show("SM90_64x16x16")
    with refuses(LayoutError):
        show("SM80_16x8x16")


def test_show_prints_to_the_terminals_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    show(SMEM, bits=16)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    show(Layout(4), width=30, height=None)
    assert "0 | 0 |" in capsys.readouterr().out
    assert cutepy.show is show
    assert cutepy.save is save


@pytest.mark.parametrize(("told", "width"), [("70", 70), ("0", 80), ("x", 80), ("", 80)])
def test_width_without_a_terminal(monkeypatch, told, width):
    monkeypatch.setenv("COLUMNS", told)
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: (_ for _ in ()).throw(OSError))
    assert terminal_width() == width


def test_in_a_notebook_show_displays_html(monkeypatch):
    shown = []
    shell = type("Shell", (type("ZMQInteractiveShell", (), {}),), {})()  # as hosted notebooks derive theirs
    display = types.SimpleNamespace(display=shown.append, HTML=lambda text: text)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    show(Layout((2, 2)))
    assert HtmlGrid(shown[0]).tables


def test_banks_and_units_are_those_of_the_hardware():
    from cutepy.layouts.grids import of_layouts, units

    assert (of_layouts.BANKS, of_layouts.BANK_BYTES) == (arch.SMEM_BANKS, arch.SMEM_BANK_BYTES)
    assert (units.UNIT_BYTES, units.UNIT_BITS) == (arch.UNIT_BYTES, arch.UNIT_BITS)


def test_nothing_heavy_is_imported_to_show():
    code = (
        "import sys, cutepy.layouts as cl; cl.show('Sw<3,3,3> o 0 o (8,64):(64,1)', bits=16); "
        "print(*{'numpy', 'torch', 'rich', 'cutlass', 'dataclasses', 'cutepy.layouts.sm90'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.integration
def test_a_swizzled_tile_is_shown_in_less_than_a_tenth_of_a_second():
    code = f"import cutepy; cutepy.show({str(SMEM)!r}, bits=16)"
    assert takes_less(0.1, "-c", code, start_excluded=True)


# ---------------------------------------------------------------------------------------------------------------------
# Texts
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("major", ["MN", "K"])
@pytest.mark.parametrize("mode", ["SW32", "SW64", "SW128"])
def test_the_dsls_swizzles_are_bytes_once_the_width_is_known(major, mode, bits):
    atom = sm90.gmma_layout_atom(major, mode, bits)
    dsl = f"S<{atom.layoutB.bits},4,3> o 0 o {atom.layoutA}"
    grid = picture_of(dsl, bits=bits)
    assert [[cell.offset for cell in row] for row in grid.cells] == [
        [cell.offset for cell in row] for row in picture_of(atom, bits=bits).cells
    ]
    assert f"S<{atom.layoutB.bits},4,3> is read as the DSL means it, on byte addresses" in grid.caption[-1]
    # C++'s spelling means elements.
    cxx = picture_of(dsl.replace("S<", "Sw<"), bits=bits)
    assert cxx.cell(1, 1).offset == parse(dsl)(1, 1)
    assert any("acts on offsets of elements" in line for line in cxx.caption)
    assert "tell the width" in picture_of(dsl).caption[-1]


def test_layouts_of_others_are_drawn_as_they_print():
    pycute = pytest.importorskip("pycute")
    theirs = pycute.Layout((4, (2, 3)), (6, (3, 1)))
    ours = picture_of(Layout((4, (2, 3)), (6, (3, 1))))
    assert [[cell.text for cell in row] for row in picture_of(theirs).cells] == [
        [cell.text for cell in row] for row in ours.cells
    ]

    class OfTheDsl:
        def __str__(self):
            return "S<3,4,3> o 0 o (8,64):(64,1)"

    assert picture_of(OfTheDsl(), bits=16).cell(1, 0).offset == 72
    assert compare(OfTheDsl(), "Sw<3,3,3> o 0 o (8,64):(64,1)", bits=16).title == "all 512 elements equal"


def test_pointers_and_plain_layouts_leave_no_doubt():
    printed = "tensor<ptr<f16, smem, align<1024>, S<3,4,3>> o (64,8):(1,64)>"
    assert not any("DSL" in line for line in picture_of(printed, bits=16).caption)
    assert not any("DSL" in line for line in picture_of("(64,8):(1,64)", bits=16).caption)


# ---------------------------------------------------------------------------------------------------------------------
# Tensors
# ---------------------------------------------------------------------------------------------------------------------


class Tensor:
    """A tensor without tolist."""

    def __init__(self, *shape):
        self.shape = shape

    def __getitem__(self, coordinate):
        return sum(10**k * c for k, c in enumerate(coordinate))


class Listed(Tensor):
    """A tensor with tolist."""

    def tolist(self):
        def build(prefix):
            if len(prefix) == len(self.shape):
                return self[prefix]
            return [build((*prefix, i)) for i in range(self.shape[len(prefix)])]

        return build(())


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.sampled_from((Tensor, Listed)))
def test_elements_stand_at_their_coordinates(shape, kind):
    grid = tensor_grid(kind(*shape))
    found = read_text(render_text(grid.but(title="", caption=())))
    assert len(found) == math.prod(shape)
    for (row, column), text in found.items():
        coordinate = [0] * len(shape)
        coordinate[0::2] = map(int, row.split(","))
        coordinate[1::2] = map(int, [part for part in column.split(",") if part])
        assert int(text) == kind(*shape)[coordinate]


def test_tensors_of_numpy_and_of_no_rank():
    numpy = pytest.importorskip("numpy")
    grid = picture_of(numpy.array([[0.5, 1 / 3]]))
    assert [cell.text for cell in grid.cells[0]] == ["0.5", "0.33333"]
    assert grid.cell(0, 1).data == str(1 / 3)
    assert grid.title == "ndarray (1, 2) of float64"
    assert picture_of(numpy.array(7)).cell(0, 0).text == "7"
    memory = picture_of(numpy.arange(8).reshape(2, 4), layout=Layout((4, 2), (2, 1)))
    assert [[cell.text for cell in row] for row in memory.cells] == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]


def test_a_memory_is_seen_through_a_layout():
    grid = tensor_grid(list("abcdefgh"), layout=parse("Sw<1,0,2> o 0 o (2,4):(4,1)"), bits=16)
    assert [cell.text for cell in grid.cells[1]] == ["f", "e", "h", "g"]
    assert grid.cell(1, 0).byte == 10
    with refuses(LayoutError):
        tensor_grid([1, 2, 3, 4], layout=Layout((2, 4))).cell(1, 3)
    with refuses(LayoutError):
        tensor_grid([1, 2, 3, 4], layout=Layout(4, -1)).cell(1, 0)
    with refuses(LayoutError):
        tensor_grid(Tensor(2), bits=16)
    with refuses(TypeError):
        tensor_grid([1], layout="1:1")
    with refuses(TypeError):
        tensor_grid([1])


@given(any_layouts())
def test_any_layout_is_drawn_in_every_format(layout):
    picture = picture_of(layout)
    assert render_text(picture, width=80, height=200)
    assert render_svg(picture)
    assert render_html(picture)
    assert render_latex(picture)
    assert compare(layout, layout).title.startswith("all ")


NOTEBOOK = {
    "a layout": lambda: Layout((128, 128)),
    "a huge layout": lambda: Layout((1 << 40, 1 << 40)),
    "an instruction": lambda: sm90.wgmma_traits("SM90_64x256x16_F16F16F16_SS"),
    "a comparison": lambda: compare(Layout((128, 128)), Layout((128, 128), (128, 1))),
    "sixty-four accesses": lambda: bank_conflicts(columns(64), Layout((32, 64), (64, 1)), 32),
}


def columns(count):
    return [warp_access("ld", lambda lane, column=column: (lane, column)) for column in range(count)]


@pytest.mark.parametrize("what", NOTEBOOK)
def test_a_notebook_keeps_a_bounded_picture(what):
    value = NOTEBOOK[what]()
    page = value._repr_html_()
    for drawn in (page, value._repr_svg_()):
        assert len(drawn) < 300_000
        assert "are too many here" in drawn
    assert "folded for the notebook: show(...) and save(...) draw more of it" in page
    if what == "sixty-four accesses":
        assert "only the first" in page


def test_a_small_picture_is_whole_in_a_notebook():
    drawn = Layout((8, 8))._repr_html_()
    assert drawn.count("<td") == 64
    assert "folded" not in drawn


def test_a_title_is_a_comment_of_latex():
    picture = Picture((picture_of(Layout(2)),), "a ~z\x7f\x1f\né")
    assert "% a ~z????" in render_latex(picture).split("\n")


def test_the_title_of_a_grid_stands_in_latex_once():
    titled = render_latex(layout_grid(Layout(2), title="a_b"))
    assert titled.count(r"\bfseries a\_b") == titled.count(r"\bfseries") == 1
