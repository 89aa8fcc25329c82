"""The heap of kernels: memory that is given back joins its free neighbours, in whatever order it comes."""

from itertools import permutations

import pytest

from cutepy.sim.mechanisms.heap import Space


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_memory_given_back_joins_its_free_neighbours(kept):
    for order in permutations({*range(5)} - {kept}):
        space = Space(80)
        taken = [space.take(16) for _ in range(5)]
        assert space.take(1) is None
        assert [space.give(taken[n]) for n in order] == [16] * 4
        runs = (16 * kept, taken[0]), (16 * (4 - kept), taken[kept + 1])
        for size, address in sorted(runs, key=lambda run: -run[0]):
            assert space.take(size) == address
        assert space.give(taken[kept]) == 16
        assert space.give(taken[kept]) is None
