"""Stream-K's arithmetic: everything is somebody's once, and who finishes a tile knows who has the rest of it."""

from hypothesis import given, settings, strategies as st

from cutepy.device import rules
from cutepy.device.rules.shares import LEAST_STEPS


@settings(max_examples=50, deadline=None)
@given(tiles=st.integers(1, 300), k_tiles=st.integers(1, 130), clusters=st.integers(1, 140))
def test_everything_is_dealt_out_once(tiles, k_tiles, clusters):
    clusters = min(clusters, tiles * rules.parts_of(k_tiles))
    plan = rules.Shares(tiles, k_tiles, clusters)
    given_out, finishers, left = set(), {}, {}
    for cluster in range(clusters):
        share = plan.share(cluster)
        units = [plan.unit(cluster, share, index) for index in range(plan.units(share))]
        assert len(units) <= plan.whole + 2
        assert sum(unit.count for unit in units) <= (plan.whole + 1) * k_tiles
        for index, (tile, first, count, peers) in enumerate(units):
            steps = {(tile, step) for step in range(first, first + count)}
            assert len(steps) == count > 0
            assert not steps & given_out
            given_out |= steps
            if first == 0:
                # It waits for others once this cluster has left all that others wait for.
                assert index < plan.whole or index == len(units) - 1
                finishers[tile] = (cluster, share.number, peers)
            else:
                assert share.number not in left, "a share leaves one part at most"
                left[share.number] = (tile, first, cluster)
    assert given_out == {(tile, step) for tile in range(tiles) for step in range(k_tiles)}
    for tile, (cluster, share, peers) in finishers.items():
        fetched = [left.pop(other) for other in range(share + 1, share + 1 + peers)]
        assert fetched == sorted(fetched, key=lambda part: part[1]), "parts are fetched in the order of K"
        assert all(part[0] == tile and part[2] < cluster for part in fetched)
    assert not left


@given(tiles=st.integers(1, 300), k_tiles=st.integers(1, 130), clusters=st.integers(1, 140))
def test_steps_are_those_of_the_cluster_with_most(tiles, k_tiles, clusters):
    """The count is exact if each share begins at its even place, but for one reader of a tile."""
    plan = rules.Shares(tiles, k_tiles, clusters)
    dealt = [
        [plan.unit(n, share, at) for at in range(plan.units(share))]
        for n, share in enumerate(map(plan.share, range(clusters)))
    ]
    longest = max(sum(unit.count for unit in units) for units in dealt)
    peers = max((unit.peers for units in dealt for unit in units), default=0)
    each, more = divmod(tiles % clusters * k_tiles, max(plan.count, 1))
    if all(plan.begin(n) == n * each + min(n, more) for n in range(plan.count)):
        assert plan.steps - longest in (LEAST_STEPS * peers, LEAST_STEPS * max(peers - 1, 0))


def test_the_last_wave_gets_shorter():
    # 162 tiles of 36 tiles of K on 132 SMs: 48 of two times 36, and as long as 8 to read two others' sums.
    assert rules.Shares(162, 36, 132).steps == 36 + 12 + 2 * 4
    assert rules.Shares(264, 36, 132).steps == 2 * 36
