"""Output of the installed CuTe DSL for random layouts, tensors, MMAs and copies, read back and drawn."""

import random
from typing import Any

import pytest

from cutepy.layouts import ComposedLayout, Layout, PrintedCopy, PrintedMMA, SmemPtr, Swizzle, parse, parse_all
from cutepy.layouts.notation.unknowns import RuntimeValue
from cutepy.layouts.render import picture_of

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")

from cutlass.cute.nvgpu import warp, warpgroup  # noqa: E402


def printed(body: Any) -> list[Any]:
    """Call a generator of (what, DSL value) while the DSL traces; return (what, text)."""
    found: list[Any] = []

    def collect(n):
        found.extend((what, str(value)) for what, value in body(n))

    @cute.jit
    def host(n: cutlass.Int32):
        collect(n)

    cute.compile(host, 4, options="--gpu-arch=sm_90a")
    return found


def some_layouts(count: int) -> list[Layout]:
    rng = random.Random(11)

    def modes(depth):
        if depth and rng.random() < 0.5:
            pairs = [modes(depth - 1) for _ in range(rng.randint(2, 3))]
            return tuple(s for s, _ in pairs), tuple(d for _, d in pairs)
        return rng.choice([2, 3, 8, 64]), rng.choice([0, 1, 2, 7, 64, 4096])

    pairs = [(modes(2), modes(2)) for _ in range(count)]
    return [Layout((a[0], b[0]), (a[1], b[1])) for a, b in pairs]


def test_layouts_and_tensors_of_all_kinds(monkeypatch):
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    layouts = some_layouts(40)

    def made(n):
        for layout in layouts:
            theirs = cute.make_layout(layout.shape, stride=layout.stride)
            swizzled = cute.make_composed_layout(cute.make_swizzle(2, 4, 3), 0, theirs)
            yield layout, theirs
            yield layout, theirs.type
            yield ComposedLayout(Swizzle(2, 4, 3), 0, layout), swizzled
            smem = cute.make_ptr(cutlass.Float16, 0, cute.AddressSpace.smem, assumed_align=1024)
            yield layout, cute.make_tensor(smem, theirs)
            yield layout, cute.make_tensor(smem, theirs).type
            at = cute.recast_ptr(smem, cute.make_swizzle(2, 4, 3))
            yield ComposedLayout(Swizzle(2, 4, 3), SmemPtr(16), layout), cute.make_tensor(at, theirs)
            yield ComposedLayout(Swizzle(2, 4, 3), SmemPtr(16), layout), cute.make_tensor(at, theirs).type
        identity = cute.make_identity_tensor((64, 32))
        yield parse("(64,32):(1@0,1@1)"), identity
        yield parse("(64,32):(1@0,1@1)"), identity.type
        yield (8, 24), cute.local_tile(identity, (8, 8), (1, 3))

    texts = printed(made)
    assert len(texts) == 7 * 40 + 3
    for expected, text in texts[:-1]:
        assert parse(text) == expected, text
        assert parse(text.upper().replace("!CUTE", "!cute")) == expected
    (start, text) = texts[-1]
    assert parse(text)(0, 0) == start
    assert parse(text)(7, 5) == (start[0] + 7, start[1] + 5)
    # All of them in one paste, each named.
    paste = parse_all("\n".join(f"value {i}: {text}" for i, (_, text) in enumerate(texts)))
    assert [found.value for found in paste.values[:-1]] == [expected for expected, _ in texts[:-1]]
    assert (paste.skipped, paste.errors) == ((), ())


def test_numbers_known_at_run_time(monkeypatch):
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")

    def made(n):
        wide = cute.assume(cutlass.Int64(n), divby=8)
        yield ("extent", "stride"), cute.make_layout((n, 8))
        yield ("extent",), cute.make_layout((n, 8), stride=(8, 1))
        yield ("extent", "stride"), cute.make_layout((cute.assume(n, divby=16), 8), stride=(wide, 1))
        yield ("stride",), cute.make_layout((4, (2, 4)), stride=(1, (4, wide))).type

    for roles, text in printed(made):
        (found,) = parse_all(text).values
        assert isinstance(found.value, RuntimeValue)
        assert tuple(unknown.role for unknown in found.value.unknowns) == roles
        values = [unknown.divisor * 3 for unknown in found.value.unknowns]
        assert [leaf for leaf in _leaves(parse(text, given=values)) if leaf in values] == values
    assert [(unknown.bits, unknown.divisor) for unknown in parse_all(text).values[0].value.unknowns] == [(64, 8)]


def _leaves(layout):
    def flat(tree):
        return [leaf for part in tree for leaf in flat(part)] if isinstance(tree, tuple) else [tree]

    return [*flat(layout.shape), *flat(layout.stride)]


def test_mmas_and_copies(monkeypatch):
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    k_major = cute.nvgpu.OperandMajorMode.K

    def made(n):
        for source in (warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM):
            for tile_n in (8, 64, 96):
                op = warpgroup.MmaF16BF16Op(
                    cutlass.Float16, cutlass.Float32, (64, tile_n, 16), source, k_major, k_major
                )
                shape = (64, tile_n, 16)
                yield (shape, (1, 1, 1), source), cute.make_mma_atom(op)
                for atoms in ((1, 1, 1), (2, 1, 1), (1, 2, 1)):
                    yield (shape, atoms, source), cute.make_tiled_mma(op, atoms)
        op = warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
        mma = cute.make_tiled_mma(op, (2, 2, 1), permutation_mnk=(32, 32, 16))
        yield ((16, 8, 16), (2, 2, 1), None), mma
        for matrices in (1, 2, 4):
            for transpose in (False, True):
                load = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(transpose, matrices), cutlass.Float16)
                store = cute.make_copy_atom(warp.StMatrix8x8x16bOp(transpose, matrices), cutlass.Float16)
                yield ("load", matrices), load
                yield ("store", matrices), store
                yield ("load of A", matrices), cute.make_tiled_copy_A(load, mma)
                yield ("store of C", matrices), cute.make_tiled_copy_C(store, mma)

    mmas = copies = 0
    for what, text in printed(made):
        value = parse(text)
        assert parse(str(value)) == value
        if isinstance(value, PrintedMMA):
            mmas += 1
            _check_mma(value, *what)
        else:
            copies += 1
            assert isinstance(value, PrintedCopy)
            assert value.bits == 16
            assert value.reference == (value.dst_layout if what[0].startswith("load") else value.src_layout)
            _check_copy(value, *what)
    assert (mmas, copies) == (25, 24)


def _holders(grid):
    return {
        (i, j): {(thread, value) for threads, value in grid.cell(i, j).owners for thread in threads}
        for i in range(grid.rows.size)
        for j in range(grid.columns.size)
    }


def _check_mma(value, shape, atoms, source):
    assert value.shape_mnk == shape
    m, n, k = value.tile_shape
    a, b, c = picture_of(value).grids
    for grid, extents in ((a, (m, k)), (b, (n, k)), (c, (m, n))):
        assert (grid.rows.size, grid.columns.size) == extents
    seen = [source is warpgroup.OperandSource.SMEM, source is not None]
    assert ["shared memory" in grid.title for grid in (a, b)] == seen
    if source is None:
        return
    for (row, column), held in _holders(c).items():
        # PTX ISA: a row of 8 columns is four threads' pairs; warps take 16 rows each, warpgroups 64.
        group = row // 64 if atoms[0] > 1 else column // shape[1]
        thread = 128 * group + 32 * (row % 64 // 16) + 4 * (row % 8) + column % 8 // 2
        assert held == {(thread, column % 2 + 2 * (row // 8 % 2) + 4 * (column % shape[1] // 8))}


def _check_copy(value, what, matrices):
    picture = picture_of(value)
    source, destination = map(_holders, picture.grids)
    registers, rows = (destination, source) if what.startswith("load") else (source, destination)
    # Every thread has two elements of each matrix in registers, and addresses rows of eight neighbours.
    threads = 128 if " of " in what else 32
    held: dict[int, int] = {}
    for holders in registers.values():
        for thread, _ in holders:
            held[thread] = held.get(thread, 0) + 1
    assert set(held) == set(range(threads))
    assert {count % (2 * matrices) for count in held.values()} == {0}
    transposed = value.reference[1](1) != 1
    across = {}
    for (row, column), holders in rows.items():
        for thread, v in holders:
            across.setdefault((thread, v // 8), set()).add(row if transposed and " of " in what else column)
    assert {len(columns) for columns in across.values()} == {8}
