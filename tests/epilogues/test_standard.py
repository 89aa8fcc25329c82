"""Standard epilogues: each is known again by its graph, and nothing else is taken for one."""

import itertools

import pytest

from cutepy.epilogues import Row, Scalar, epilogue, relu
from cutepy.epilogues.standard import ACTIVATIONS, Standard, standard, standard_of


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize(("c", "bias", "is_transposed"), list(itertools.product([False, True], repeat=3)))
def test_every_standard_epilogue_is_known_again(c, bias, activation, is_transposed):
    graph = standard(c=c, bias=bias, activation=activation).graph
    found = standard_of(graph.transposed if is_transposed else graph)
    # Only a bias tells rows from columns.
    assert found == Standard(c, bias, activation, is_transposed and bias)


def test_other_graphs_are_not_standard():
    def scaled(acc, bias: Row):
        return 2.0 * acc + bias

    def named(acc, offset: Row):
        return acc + offset

    def further(acc, bias: Row, scale: Scalar):
        return acc + bias + scale

    def twice(acc, bias: Row):
        return relu(relu(acc + bias) + bias)

    assert [standard_of(epilogue(each).graph) for each in (scaled, named, further, twice)] == [None] * 4
