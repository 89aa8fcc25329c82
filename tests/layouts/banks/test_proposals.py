"""Proposals: each is what it claims, none that was missed is better."""

from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from cutepy.layouts import ComposedLayout, Layout, SmemPtr, Swizzle, make_layout
from cutepy.layouts.banks import bank_conflicts, propose, tv_accesses, warp_access

COLUMN = warp_access("ld", lambda lane: (lane, 0))
SQUARE = Layout((32, 32), (32, 1))


def memory_elements(layout):
    """Count the elements of memory that a layout reaches, by asking for every coordinate."""
    return 1 + max(layout(i) for i in range(layout.size()))


@st.composite
def tiles(draw):
    """(accesses, tile, bits): a write along rows and a read down columns, of one width each."""
    rows, columns = draw(st.sampled_from([(32, 32), (32, 64), (64, 32), (48, 24), (32, 20)]))
    bits = draw(st.sampled_from([8, 16, 32]))
    vector = draw(st.sampled_from([1, 2, 4]))
    read = warp_access("ld", lambda lane: (lane % rows, 0), vector=vector, along=1)
    write = warp_access("st", lambda lane: (lane * vector // columns, lane * vector % columns), vector=vector, along=1)
    layout = Layout((rows, columns), (columns, 1))
    if draw(st.booleans()):
        layout = ComposedLayout(Swizzle(1, 2, 3), 0, layout)
    return [write, read], layout, bits


@settings(max_examples=25)
@given(tiles())
def test_every_proposal_is_proven_and_ordered(tile):
    accesses, layout, bits = tile
    now = bank_conflicts(accesses, layout, bits)
    proposals = now.proposals
    for proposal in proposals:
        again = bank_conflicts(accesses, proposal.layout, bits)
        assert again.accesses == proposal.proof
        assert again.wavefronts == proposal.wavefronts < now.wavefronts
        values = [proposal.layout(i) for i in range(proposal.layout.size())]
        assert len(set(values)) == len(values)
        assert memory_elements(proposal.layout) * bits <= (
            proposal.extra_bytes * 8 + -(-memory_elements(layout) // 8) * 8 * bits
        )
    keys = [(proposal.wavefronts, proposal.extra_bytes) for proposal in proposals]
    assert keys == sorted(keys)


def test_a_square_tile_needs_five_bits_or_one_word():
    swizzle, padding = propose(COLUMN, SQUARE, 32)
    assert (str(swizzle.layout), swizzle.wavefronts, swizzle.extra_bytes) == ("Sw<5,0,5> o 0 o (32,32):(32,1)", 1, 0)
    assert (str(padding.layout), padding.wavefronts, padding.extra_bytes) == ("(32,32):(33,1)", 1, 31 * 4)


def test_no_swizzle_in_reach_is_better_than_the_proposed():
    vectors = [
        warp_access("st", lambda lane: (0, 4 * lane), vector=4, along=1),
        warp_access("ld", lambda lane: (lane, 0)),
    ]
    layout = Layout((128, 128), (128, 1))
    best = min(
        bank_conflicts(vectors, ComposedLayout(Swizzle(b, m, s), 0, layout), 32).wavefronts
        for b, m, s in product(range(1, 6), range(2, 6), range(1, 12))
        if s >= b
    )
    assert propose(vectors, layout, 32)[0].wavefronts == best == 4 + 4  # eight groups of four banks for 32 rows


def test_nothing_is_proposed_where_nothing_is_lost_or_known():
    assert propose(COLUMN, Layout((32, 32)), 32) == ()
    assert propose(COLUMN, make_layout((32, 1), (-32, 1)), 32) == ()
    lost = ComposedLayout(Swizzle(2, 0, 5), 1, SQUARE)
    assert propose(COLUMN, lost, 32) == ()


def test_a_swizzle_in_use_is_replaced_and_its_memory_counted():
    layout = ComposedLayout(Swizzle(2, 0, 5), 0, SQUARE)
    assert bank_conflicts(COLUMN, layout, 32).wavefronts == 8
    assert [p.extra_bytes for p in propose(COLUMN, layout, 32)] == [0, 124]
    pointer = ComposedLayout(Swizzle(2, 4, 3), SmemPtr(16), Layout((64, 64), (64, 1)))
    rows = warp_access("ldmatrix", [(row, 0) for row in range(32)], vector=8, along=1)
    assert bank_conflicts(rows, pointer, 16).wavefronts == 8
    assert str(propose(rows, pointer, 16)[0].layout) == "Sw<3,3,3> o 0 o (64,64):(64,1)"


def test_hierarchical_tiles_are_padded_at_each_level():
    tile = Layout(((8, 4), 32), ((32, 256), 1))
    down = warp_access("ld", lambda lane: (lane, 0))
    paddings = [p for p in propose(down, tile, 32) if "padding" in p.what]
    assert paddings[0].wavefronts == 1
    assert str(paddings[0].layout) == "((8,4),32):((33,264),1)"


@pytest.mark.integration
def test_many_accesses_are_proposed_for_in_time():
    tv = Layout(((4, 8, 4), (2, 2, 8)), ((128, 1, 16), (64, 8, 512)))
    stores = tv_accesses("st", tv, vector=2)
    report = bank_conflicts(stores, Layout((64, 64), (64, 1)), 16)
    assert (report.wavefronts, report.ideal) == (512, 64)
    assert report.proposals[0].wavefronts == 64
