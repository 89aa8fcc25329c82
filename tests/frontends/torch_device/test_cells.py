"""Derivatives of the cells of LSTM and GRU, beside those that autograd takes of the cells' formulas."""

import pytest
import torch

from cutepy.frontends.torch_device import cuda_only

pytestmark = pytest.mark.dsl


@pytest.mark.parametrize("given", ["both", "hidden", "cell"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_derivative_of_an_lstm_cell_is_autograds(given, has_bias):
    torch.manual_seed(0)
    x, h, cx = (torch.randn(3, n, dtype=torch.float64, requires_grad=True) for n in (20, 20, 5))
    biases = [torch.randn(20, dtype=torch.float64, requires_grad=True) for _ in range(2)] if has_bias else [None, None]
    hidden, cell, workspace = cuda_only._lstm_cell(x, h, cx, *biases)
    by_hidden, by_cell = (
        None if given == other else torch.randn(3, 5, dtype=torch.float64) for other in ("cell", "hidden")
    )
    pairs = [(y, dy) for y, dy in ((hidden, by_hidden), (cell, by_cell)) if dy is not None]
    wanted = torch.autograd.grad([y for y, _ in pairs], [x, cx, *biases[:has_bias]], [dy for _, dy in pairs])
    gates, to_cell, bias = cuda_only._lstm_cell_backward(by_hidden, by_cell, cx, cell, workspace, has_bias)
    torch.testing.assert_close(gates, wanted[0])
    torch.testing.assert_close(to_cell, wanted[1])
    if has_bias:
        torch.testing.assert_close(bias, wanted[2])
    else:
        assert bias.numel() == 0


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_derivative_of_a_gru_cell_is_autograds(has_bias):
    torch.manual_seed(0)
    x, h, hx = (torch.randn(3, n, dtype=torch.float64, requires_grad=True) for n in (15, 15, 5))
    biases = [torch.randn(15, dtype=torch.float64, requires_grad=True) for _ in range(2)] if has_bias else [None, None]
    hidden, workspace = cuda_only._gru_cell(x, h, hx, *biases)
    by_hidden = torch.randn(3, 5, dtype=torch.float64)
    wanted = torch.autograd.grad(hidden, [x, h, hx, *biases[: 2 * has_bias]], by_hidden)
    found = cuda_only._gru_cell_backward(by_hidden, workspace, has_bias)
    torch.testing.assert_close(found[: len(wanted)], wanted)
    assert all(bias.numel() == 0 for bias in found[len(wanted) :])


def test_cells_of_pytorchs_formulas():
    """`torch.nn.LSTMCell` and `torch.nn.GRUCell` of the CPU, with the products of their gates made beforehand."""
    torch.manual_seed(0)
    x, h, c = (torch.randn(3, n, dtype=torch.float64) for n in (4, 5, 5))
    for kind, cell in ((torch.nn.LSTMCell, cuda_only._lstm_cell), (torch.nn.GRUCell, cuda_only._gru_cell)):
        module = kind(4, 5, dtype=torch.float64)
        gates = x @ module.weight_ih.T, h @ module.weight_hh.T
        is_lstm = kind is torch.nn.LSTMCell
        found = cell(*gates, c if is_lstm else h, module.bias_ih, module.bias_hh)
        wanted = module(x, (h, c)) if is_lstm else (module(x, h),)
        torch.testing.assert_close(found[: len(wanted)], wanted)
