"""Groups of rows by one tensor map: boxes are cut where a group ends, wherever that is."""

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings, strategies as st

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import ragged, rules, smem, tma  # noqa: E402
from cutepy.device.pipeline import TmaRing, publish_barriers  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402

EXTENT = rules.ragged.EXTENT


@given(st.data())
def test_addresses_are_those_of_rows_modulo_2_64(data):
    bits = data.draw(st.sampled_from([8, 16, 32]))
    pitch = data.draw(st.integers(1, rules.ragged.PITCH_END_BYTES // 16 - 1)) * 128 // bits
    rows = data.draw(st.integers(1, EXTENT))
    start = data.draw(st.integers(0, rows - 1))
    length = data.draw(st.integers(1, rows - start))
    i = data.draw(st.integers(0, length - 1))
    back = rules.ragged.back_stride(pitch, bits)
    assert back > 0
    assert back * bits // 8 < 2**40
    assert back * bits % 128 == 0
    coordinates = (EXTENT - length + i, start + length, EXTENT)
    offset = sum(c * s for c, s in zip(coordinates, (pitch, pitch, back), strict=True))
    assert (offset - (start + i) * pitch) * bits // 8 % 2**64 == 0
    assert coordinates[0] < EXTENT
    assert coordinates[1] < rows + 1
    assert EXTENT - length + length == EXTENT, "the row after the group's last is outside"


@pytest.mark.parametrize(
    "arguments",
    [
        (EXTENT + 1, 64, "a"),
        (1, 24),
        (1, 2**34),
    ],
)
def test_what_tma_cannot_hold_is_refused(arguments):
    with refuses(ValueError):
        rules.ragged.check_ragged(*arguments)


@dataclass(frozen=True)
class Shape:
    """A ragged tensor: the mode that is in groups, a matrix for each group or one for all, and the tile."""

    ragged: int
    batched: bool
    tile: tuple[int, int] = (64, 64)


class Move:
    """Load the tiles of each group, one after another, and store them to the rows of a group of another matrix."""

    def __init__(self, shape: Shape):
        self.shape = shape
        major = 1 - shape.ragged
        self.plan = sm90.SmemPlan.of(
            {"sX": sm90.StagedTile(shape.tile, 2, 16, major), "barriers": sm90.SmemArray(4, bits=64)}
        )

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, starts: cute.Tensor, lengths: cute.Tensor):
        shape, sX = self.shape, self.plan["sX"].content
        layout = cutepy.dsl.to_cute(sX.layout)
        load, mX = tma.make_load(ragged.ragged_view(x, shape.ragged), layout, sX.tile, 1)
        store, mY = tma.make_store(ragged.ragged_view(y, shape.ragged), layout, sX.tile)
        tiles = tuple(cute.ceil_div(x.shape[mode], shape.tile[mode]) for mode in (0, 1))
        self.kernel(load, mX, store, mY, tiles, starts, lengths).launch(
            grid=(cute.size(starts), 1, 1), block=(32, 1, 1)
        )

    @cute.kernel
    def kernel(self, load, mX: cute.Tensor, store, mY: cute.Tensor, tiles: tuple, starts: cute.Tensor, lengths):
        shape = self.shape
        shared = smem.share(self.plan, sX=cutlass.Float16)
        ring = TmaRing(shared["barriers"], 2, 64 * 64 * 2, 1)
        with cute.arch.elect_one():
            ring.initialise()
        publish_barriers()
        x = ragged.GroupedTiles(load, mX, shared["sX"], shape.tile, shape.ragged, shape.batched)
        y = ragged.GroupedTiles(store, mY, shared["sX"], shape.tile, shape.ragged, shape.batched)
        loads = x.loads()
        group, _, _ = cute.arch.block_idx()
        place = (group, starts[group], lengths[group])
        filled, read = ring.producer_state(), ring.consumer_state()
        for index in cutlass.range(tiles[0] * tiles[1], unroll=1):
            row, column = index // tiles[1], index % tiles[1]
            loads.load((row, column, *place), filled.index, ring.acquire(filled))
            filled.advance()
            ring.wait(read)
            subtiles = y.subtiles((row, column, *place))
            cute.copy(subtiles.copy, subtiles.tSs[(None, read.index)], subtiles.place(0))
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)
            cute.arch.sync_warp()
            ring.release(read)
            read.advance()
        ring.drain(filled)


@st.composite
def groups(draw, rows):
    """Groups that begin where the last ended, with gaps: starts and lengths."""
    cuts = sorted(draw(st.lists(st.integers(0, rows), min_size=2, max_size=8)))
    return cuts[:-1], [b - a - draw(st.integers(0, b - a)) for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("shape", [Shape(0, False), Shape(1, False), Shape(0, True), Shape(1, True)], ids=repr)
@settings(max_examples=8)
@given(data=st.data())
def test_groups_are_moved_and_nothing_else(shape, data):
    rows, columns = data.draw(st.integers(1, 150)), 8 * data.draw(st.integers(1, 12))
    starts, lengths = data.draw(groups(rows))
    extents = (len(starts), rows, columns) if shape.batched else (rows, columns)
    x = torch.randint(1, 9, extents).half()
    y = torch.zeros_like(x)
    expected = torch.zeros_like(x)
    for g, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        of = (g,) if shape.batched else ()
        expected[(*of, slice(start, start + length))] = x[(*of, slice(start, start + length))]
    turned = (lambda t: t) if shape.ragged == 0 else lambda t: t.mT
    last = (lambda t: turned(t).permute(1, 2, 0)) if shape.batched else turned
    with cutepy.simulate(sanitize=True) as run:
        Move(shape)(last(x), last(y), torch.tensor(starts).int(), torch.tensor(lengths).int())
    assert torch.equal(y, expected)
    assert not run.hazards
