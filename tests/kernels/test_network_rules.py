"""Networks of comparators sort and merge: all sequences of zeros and ones, by which all others."""

import itertools

import pytest

from cutepy.kernels.rows.networks import merging_network, sorting_network


def ran(network, values):
    values = list(values)
    for i, j in network:
        assert i < j
        values[i], values[j] = max(values[i], values[j]), min(values[i], values[j])
    return values


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_sorting_network_sorts(count):
    for values in itertools.product((0, 1), repeat=count):
        assert ran(sorting_network(count), values) == sorted(values, reverse=True)


def test_larger_ones_sort_two_sorted_halves_and_blocks():
    """Of 32: sequences that are sorted but for a block, which any network of merges takes in turn."""
    network = sorting_network(32)
    for first, last in itertools.combinations_with_replacement(range(33), 2):
        values = [1 if first <= n < last else 0 for n in range(32)]
        assert ran(network, values) == sorted(values, reverse=True)
        assert ran(network, [1 - each for each in values]) == sorted([1 - each for each in values], reverse=True)


@pytest.mark.parametrize("count", [1, 2, 16, 32])
def test_a_merging_network_sorts_bitonic_sequences(count):
    for first, last in itertools.combinations_with_replacement(range(count + 1), 2):
        for inside in (0, 1):
            values = [inside if first <= n < last else 1 - inside for n in range(count)]
            assert ran(merging_network(count), values) == sorted(values, reverse=True)
