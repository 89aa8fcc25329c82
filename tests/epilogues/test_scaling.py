"""Scales before an epilogue multiply the accumulators first, under names that the epilogue leaves free."""

import torch

from cutepy.epilogues import Column, Row, epilogue
from cutepy.epilogues.reference import compute
from cutepy.epilogues.scaling import scaled


@epilogue
def biased(acc, scale0: Row, scale2: Column):
    total = (acc + scale0) * scale2
    return torch.relu(total), total


def test_scales_multiply_first_under_free_names():
    graph = scaled(biased.graph, ("column", "row", "scalar"))
    assert [operand.name for operand in graph.operands] == ["scale1", "scale3", "scale4", "scale0", "scale2"]
    assert [operand.shape for operand in graph.operands[:3]] == ["column", "row", "scalar"]
    torch.manual_seed(0)
    acc, column, row, bias, weight = (torch.randn(size) for size in ((3, 8), 3, 8, 8, 3))
    operands = {"scale1": column, "scale3": row, "scale4": 0.5, "scale0": bias, "scale2": weight}
    found = compute(graph, acc, operands, torch.float64)
    wide = acc.double() * column.double()[:, None] * row.double() * 0.5
    total = (wide + bias.double()) * weight.double()[:, None]
    torch.testing.assert_close(found, [total.relu(), total])
    assert {node.width for node in graph.nodes} == {1}
    assert [result.name for result in graph.results] == [result.name for result in biased.graph.results]
