"""Our pictures, cell by cell, against those that C++ CuTe's and the DSL's own printers draw."""

import pytest

from cutepy.layouts import parse, sm90
from cutepy.layouts.render import picture_of
from tests.golden.calls import vectors
from tests.oracle.cpp import Case
from tests.oracle.pictures import CASES, our_object, our_tables, read_tikz, table

DRAWN = [(Case(row["of"], tuple(row["in"])), row["cells"]) for row in vectors("pictures")]


@pytest.mark.parametrize(("case", "cells"), DRAWN, ids=lambda x: "-".join(map(str, x.operands)) if x in CASES else "")
def test_every_cell_is_as_cute_draws_it(case, cells):
    value, shape = our_object(case)
    assert our_tables(value) == cells
    drawn = [text for rows in cells.values() for row in rows for text in row.split()]
    assert len(drawn) >= shape[0] * shape[1]


def test_all_cases_are_recorded():
    assert [case for case, _ in DRAWN] == list(CASES)
    assert len(CASES) >= 60


def test_a_difference_is_seen():
    """A swizzle of another unit, an atom beside another, a copy by rows and not by columns."""
    by_case = {case.operands: cells for case, cells in DRAWN}
    assert our_tables(parse("Sw<1,0,2> o 0 o (4,4):(1,4)")) != by_case[("Sw<1,0,2> o 0 o (4,4):(4,1)",)]
    assert our_tables(sm90.gmma_layout_atom("K", "SW64", 16)) != by_case["K", "SW128", "half_t", 16]
    tall = sm90.make_tiled_copy(
        sm90.make_copy_atom(sm90.universal_copy(128), 16), parse("(16,4):(1,16)"), parse("(1,8):(0,1)")
    )
    assert our_tables(tall) != by_case["UniversalCopy<uint128_t>", 16, "tv", "(16,4):(4,1)", "(1,8):(0,1)", ""]


def test_the_reader_of_tikz():
    text = r"""\node[fill=black!40] at (0,1) {12};
    \node[fill={rgb,255:red,175;green,175;blue,255}] at (-3,-1) {\shortstack{T3 \\ V10}};
    \node at (4,-1) {\Large{\texttt{4}}};
    \node at (2,2) {\shortstack{T0 \\ V1}};"""
    assert read_tikz(text) == {(0, 1): "12", (-3, -1): "3.10", (2, 2): "0.1"}
    assert table({(0, 0): "1", (1, 1): "2"}, 2, 2) == ["1 -", "- 2"]
    with pytest.raises(AssertionError):
        table({(0, 2): "1"}, 2, 2)


# ---------------------------------------------------------------------------------------------------------------------
# The DSL's printers, live
# ---------------------------------------------------------------------------------------------------------------------

LAYOUTS = (
    "(4,8):(1,4)",
    "((2,2),(2,4)):((1,8),(2,16))",
    "S<2,1,3> o 0 o (4,8):(8,1)",
)


@pytest.mark.dsl
@pytest.mark.integration
def test_every_cell_is_as_the_dsl_draws_it(monkeypatch):
    """Layouts, tiled MMAs and tiled copies, drawn by `cute.viz` and, once through the bridge, by cutepy."""
    cute = pytest.importorskip("cutlass.cute")
    import cutlass
    from cutlass.cute import nvgpu, viz
    from cutlass.cute.nvgpu import cpasync, warp, warpgroup

    from cutepy.dsl import from_cute, to_cute

    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    compared = []

    def printed(layout, tile=None):
        texts = []
        if tile is None:
            viz.print_latex(layout, render_func=texts.append)
        else:
            viz.print_latex_tv(layout, tile, render_func=texts.append)
        return read_tikz(texts[0].replace("fill= ", "fill=").replace(" ] at", "] at"))

    def tables_of(layouts, shapes):
        # Their printer divides by the stride of an extent of 1, which is 0; and what all threads of wgmma share, it
        # takes seconds to evaluate, thread by thread.
        drawn = {name: shape for name, shape in shapes.items() if 1 not in shape and cute.size(layouts[name]) < 4096}
        return {name: table(printed(layouts[name], shape), *shape) for name, shape in drawn.items()}

    def body():
        for text in LAYOUTS:
            layout = to_cute(parse(text))
            extents = [part.size() for part in getattr(parse(text), "layoutA", parse(text))]
            compared.append((text, {"": table(printed(layout), *extents)}, our_tables(from_cute(layout))))
        f16, f32 = cutlass.Float16, cutlass.Float32
        k_major = nvgpu.OperandMajorMode.K
        rs = warpgroup.MmaF16BF16Op(f16, f32, (64, 8, 16), warpgroup.OperandSource.RMEM, k_major, k_major)
        small = cute.make_tiled_mma(warp.MmaF16BF16Op(f16, f32, (16, 8, 16)), (2, 1, 1), permutation_mnk=(32, 16, 16))
        mmas = [
            small,
            cute.make_tiled_mma(rs, (1, 1, 1)),
            cute.make_tiled_mma(nvgpu.MmaUniversalOp(f32), (4, 8, 1)),
        ]
        for mma in mmas:
            m, n, k = (mma.get_tile_size(mode) for mode in range(3))
            m, n, k = (extent if isinstance(extent, int) else cute.size(extent) for extent in (m, n, k))
            layouts = {"A": mma.tv_layout_A_tiled, "B": mma.tv_layout_B_tiled, "C": mma.tv_layout_C_tiled}
            shapes = {"A": (m, k), "B": (n, k), "C": (m, n)}
            ours = from_cute(mma)
            drawn = tables_of(layouts, shapes)
            compared.append(
                (str(ours), drawn, {name: cells for name, cells in our_tables(ours).items() if name in drawn})
            )
        plain = cute.make_copy_atom(nvgpu.CopyUniversalOp(), f16, num_bits_per_copy=64)
        fetch = cute.make_copy_atom(cpasync.CopyG2SOp(), f32, num_bits_per_copy=128)
        ldsm = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), f16)
        stsm = cute.make_copy_atom(warp.StMatrix8x8x16bOp(True, 2), f16)
        by_rows = cute.make_tiled_copy_tv(plain, cute.make_layout((4, 8), stride=(8, 1)), cute.make_layout((2, 4)))
        copies = [
            by_rows,
            cute.make_tiled_copy_tv(fetch, cute.make_layout((8, 4)), cute.make_layout((1, 4))),
            cute.make_tiled_copy_A(ldsm, small),
            cute.make_tiled_copy_C(stsm, small),
            cute.make_tiled_copy_D(cute.make_copy_atom(nvgpu.CopyUniversalOp(), f16, num_bits_per_copy=16), by_rows),
        ]
        for copy in copies:
            ours = from_cute(copy)
            layouts = {"S": copy.layout_src_tv_tiled, "D": copy.layout_dst_tv_tiled}
            compared.append((str(ours), tables_of(layouts, dict.fromkeys("SD", ours.tile_shape)), our_tables(ours)))

    @cute.jit
    def trace():
        body()

    cute.compile(trace, options="--gpu-arch=sm_90a")
    assert len(compared) == 11
    for name, theirs, ours in compared:
        assert theirs == ours, name


def test_pictures_of_ranks_beyond_two_have_a_cell_for_each_element():
    """The printers refuse them; ours puts modes 0, 2 ... down and 1, 3 ... across."""
    atom = sm90.make_copy_atom(sm90.universal_copy(32), 16)
    copy = sm90.make_tiled_copy(atom, parse("(2,2,2):(1,2,4)"), parse("(2,1,2):(1,0,2)"))
    source, destination = picture_of(copy).grids
    assert (source.rows.size, source.columns.size) == (16, 2)
    for grid, layout in ((source, copy.get_layoutS_TV()), (destination, copy.get_layoutD_TV())):
        for row in grid.cells:
            for cell in row:
                i, j, k = cell.coordinate
                (((thread,), value),) = cell.owners
                assert layout(thread, value) == i + 4 * (j + 2 * k)
