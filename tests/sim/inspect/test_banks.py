"""The simulator counts wavefronts by the one rule, of many warps at once."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import banks as rule
from cutepy.sim.inspect.banks import OFF, wavefronts
from tests.layouts.banks import words
from tests.layouts.banks.patterns import addresses


@st.composite
def warps(draw):
    kind = draw(st.sampled_from(["ld", "st", "atom", "cas", "ldmatrix"]))
    size = 16 if kind == "ldmatrix" else draw(st.sampled_from([1, 2, 4, 8, 16]))
    rows = draw(st.lists(addresses(size), min_size=1, max_size=4))
    if kind == "ldmatrix":
        rows = [[0 if a is None else a for a in row] for row in rows]
    return kind, size, rows


@given(warps())
def test_the_simulator_and_the_static_report_agree(access):
    kind, size, rows = access
    table = np.array([[OFF if a is None else a for a in row] for row in rows], np.int64)
    taken, fewest = wavefronts(kind, size, table)
    assert taken == sum(rule.wavefronts(kind, size, row) for row in rows)
    assert taken == sum(words.wavefronts(kind, size, row) for row in rows)
    assert fewest == sum(rule.fewest_wavefronts(kind, size, row) for row in rows)


def test_halves_of_words_stay_in_their_words():
    """Words 0 and 32 are in one bank; moved by two bytes they would be words 0 and 31."""
    assert wavefronts("ld", 2, np.array([[2, 128]])) == (2, 1)
    assert wavefronts("st", 1, np.array([[OFF, 3, 128, 0]])) == (2, 1)


LOAD = """
mov.u32 %r1, %tid.x; mov.u32 %r0, smem;
{guard}
shr.u32 %r2, %r1, {drop};
mad.lo.u32 %r2, %r2, {pitch}, %r0;
{move}
END:
"""
READ, WRITE = "ld.shared.v4.u32 {{%r3, %r4, %r5, %r6}}, [%r2];", "st.shared.v4.u32 [%r2], {{%r1, %r1, %r1, %r1}};"
ODD_LEAVE = "and.b32 %r7, %r1, 1; setp.ne.u32 %p0, %r7, 0; @%p0 bra END;"


@pytest.mark.parametrize(
    ("move", "drop", "pitch", "guard", "counts"),
    [
        (READ, 0, 16, "", (4, 4)),
        (READ, 1, 16, "", (2, 2)),  # pairs of lanes agree: quarters merge
        (WRITE, 1, 16, "", (4, 4)),  # and in stores never
        (READ, 5, 16, "", (2, 2)),  # one address for all
        (WRITE, 5, 16, "", (4, 4)),
        (READ, 0, 16, ODD_LEAVE, (4, 2)),  # neighbours are off
        (READ, 1, 128, "", (16, 2)),
    ],
)
def test_vectors_in_a_kernel(move, drop, pitch, guard, counts):
    from tests.sim.kernels.launching import launch

    body = LOAD.format(move=move.format(), drop=drop, pitch=pitch, guard=guard)
    (site,) = launch(body, smem=32 * 128, inspect=True).conflicts()
    assert (site.warps, site.wavefronts, site.fewest) == (1, *counts)


@pytest.mark.parametrize(
    ("move", "pitch", "counts"),
    [
        ("atom.shared.add.u32 %r3, [%r2], 1;", 128, (32, 1)),
        ("red.shared.add.u32 [%r2], 1;", 128, (32, 1)),
        ("red.shared.add.u32 [%r2], %r1;", 4, (1, 1)),
        ("red.shared.add.u32 [%r2], %r1;", 0, (32, 32)),  # no layout parts lanes that share a word
        ("atom.shared.exch.b64 %rd1, [%r2], %rd1;", 128, (32, 2)),
        ("atom.shared.cas.b32 %r3, [%r2], 0, 1;", 128, (64, 2)),
        ("atom.shared::cluster.max.u32 %r3, [%r2], %r1;", 64, (16, 1)),
    ],
)
def test_atomics_in_a_kernel(move, pitch, counts):
    from tests.sim.kernels.launching import launch

    run = launch(LOAD.format(move=move, drop=0, pitch=pitch, guard=""), smem=32 * 128, inspect=True)
    (site,) = run.conflicts()
    assert (site.warps, site.wavefronts, site.fewest) == (1, *counts)
