"""Operators that CUDA alone has, and those that the CPU sums in 16 bits, on the served device."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cutepy.frontends.torch_device import serve_cuda

pytestmark = pytest.mark.dsl

MODULES = {
    "depthwise of 1 dimension": (lambda: nn.Conv1d(8, 8, 3, groups=8, padding=2), (2, 8, 9)),
    "depthwise of 2 dimensions": (lambda: nn.Conv2d(4, 8, 3, groups=4, stride=2), (2, 4, 9, 9)),
    "depthwise of 3 dimensions": (lambda: nn.Conv3d(4, 4, 2, groups=4), (2, 4, 5, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose1d(4, 4, 3, groups=4), (2, 4, 7)),
    "LSTM": (lambda: nn.LSTM(8, 4, 2, bidirectional=True), (5, 3, 8)),
    "LSTM without a bias": (lambda: nn.LSTM(8, 4, bias=False), (5, 3, 8)),
    "LSTM with a projection": (lambda: nn.LSTM(8, 4, proj_size=2), (5, 3, 8)),
    "GRU": (lambda: nn.GRU(8, 4, 2, bidirectional=True), (5, 3, 8)),
    "GRU without a bias": (lambda: nn.GRU(8, 4, bias=False), (5, 3, 8)),
    "GRU cell": (lambda: nn.GRUCell(8, 4), (3, 8)),
}


def outcome(make, shape, device, dtype=torch.float32):
    """Return the result, and the derivatives by the input and by all parameters."""
    torch.manual_seed(3)
    module, x = make().to(device, dtype), torch.randn(shape).to(device, dtype).requires_grad_()
    result = module(x)
    result = result[0] if isinstance(result, tuple) else result
    (result.float() ** 2).sum().backward()
    return [t.detach().cpu() for t in (result, x.grad, *(p.grad for p in module.parameters()))]


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, shape = MODULES[name]
    with serve_cuda():
        got = outcome(make, shape, "cuda")
    torch.testing.assert_close(got, outcome(make, shape, "cpu"))


@pytest.mark.parametrize("name", ["depthwise of 1 dimension", "LSTM without a bias", "GRU"])
def test_modules_in_16_bits_are_those_in_32_rounded(name):
    make, shape = MODULES[name]
    with serve_cuda():
        got = outcome(make, shape, "cuda", torch.float16)
    assert {t.dtype for t in got} == {torch.float16}
    torch.testing.assert_close([t.float() for t in got], outcome(make, shape, "cpu"), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("lengths", ["cpu", "cuda"])
def test_ctc_takes_lengths_in_host_memory(lengths):
    scores, targets = torch.randn(20, 3, 6).log_softmax(-1), torch.randint(1, 6, (3, 5))
    steps, symbols = torch.full((3,), 20), torch.tensor([5, 4, 3])
    with serve_cuda():
        got = F.ctc_loss(scores.cuda(), targets.cuda(), steps.to(lengths), symbols.to(lengths)).cpu()
    torch.testing.assert_close(got, F.ctc_loss(scores, targets, steps, symbols))


SUMS = {
    "cross entropy": lambda x, n: F.cross_entropy(x, n % 64),
    "weighted": lambda x, n: F.nll_loss(x, n % 64, weight=x[0].abs()),
    "of images": lambda x, n: F.cross_entropy(x.view(1, 4000, 8, 8)[:, :64], n[:64].view(1, 8, 8) % 64),
    "product": lambda x, n: (2 * x[:16]).prod(0),
    "accumulated": lambda x, n: torch.zeros_like(x[0]).index_put((n % 3,), x[:, 0].abs(), accumulate=True),
    "in place": lambda x, n: torch.zeros_like(x[0]).index_put_((n % 3,), x[:, 0].abs(), accumulate=True),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_16_bits_are_rounded_once(name, dtype):
    torch.manual_seed(3)
    x, n = torch.randn(4000, 64).to(dtype), torch.randint(0, 4000, (4000,))
    with serve_cuda():
        got = SUMS[name](x.cuda(), n.cuda()).cpu()
    assert got.dtype == dtype
    expected = SUMS[name](x.double(), n)
    torch.testing.assert_close(got.double(), expected, atol=0, rtol=torch.finfo(dtype).eps)


def test_derivatives_of_embeddings_are_rounded_once():
    with serve_cuda():
        table = torch.zeros(3, 4, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        F.embedding(torch.zeros(4000, dtype=torch.int64, device="cuda"), table).sum().backward()
        assert table.grad[0].tolist() == [4000.0] * 4


def test_what_the_host_has_not_in_16_bits():
    x, n = torch.randn(5, 4).half(), torch.tensor([0, 1, 2, 3, 0])
    with serve_cuda():
        got = F.multi_margin_loss(x.cuda(), n.cuda()).cpu()
    torch.testing.assert_close(got, F.multi_margin_loss(x.float(), n).half())


def test_outputs_that_are_given():
    with serve_cuda():
        x = torch.full((3,), 2.0, dtype=torch.float16, device="cuda")
        out = torch.empty(0, dtype=torch.float16, device="cuda")
        assert torch.prod(x, 0, out=out) is out
        assert out.item() == 8
