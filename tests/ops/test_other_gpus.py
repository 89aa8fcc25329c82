"""Operations say in a line that they are for Hopper, whatever this process has chosen for a Hopper before."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

import torch  # noqa: E402

import cutepy  # noqa: E402
from cutepy import ops  # noqa: E402
from cutepy.frontends import serve_cuda  # noqa: E402
from cutepy.host.function import WrongDeviceError  # noqa: E402
from tests.messages import refuses  # noqa: E402

CALLS = {
    "gemm": lambda x: ops.gemm(x, x),
    "attention": lambda x: ops.attention(*[x.view(1, 16, 1, 64)] * 3),
    "softmax": ops.softmax,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_blackwell_is_refused_before_and_after_a_hopper(name, device):
    """Whose choice is kept: the kernel refuses it then."""

    def computed(arch):
        with cutepy.simulate(arch=arch) if device == "cpu" else serve_cuda(arch=arch):
            return CALLS[name](torch.ones(16, 64, dtype=torch.float16, device=device)).cpu()

    with refuses(WrongDeviceError):
        computed("sm_100a")
    expected = computed("sm_90a")
    for arch in ("sm_100a", "sm_103a"):
        with refuses(WrongDeviceError):
            computed(arch)
    assert torch.equal(computed("sm_90a"), expected)
