"""Launches that begin while the one before ends: what that wrote is there, and who doesn't wait is told."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device.overlap import follow_launch  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402


class Adds:
    """Y = X + 1, by a CTA for every 32 elements; it follows the launch before it unless told otherwise."""

    def __init__(self, follows=True):
        self.follows = follows

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, lets_next_begin: cutlass.Int32):
        self.kernel(x, y, lets_next_begin).launch(grid=(cute.size(x) // 32, 1, 1), block=(32, 1, 1), use_pdl=True)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, lets_next_begin: cutlass.Int32):
        if cutlass.const_expr(self.follows):
            follow_launch(lets_next_begin != 0)
        else:
            cute.arch.griddepcontrol_launch_dependents()
        place = cute.arch.block_idx()[0] * 32 + cute.arch.thread_idx()[0]
        y[place] = x[place] + 1


def add(*lets_next_begin, follows=True, **how):
    values = [torch.zeros(128, dtype=torch.int32) for _ in range(len(lets_next_begin) + 1)]
    spec = cutepy.TensorSpec("int32", (128,))
    with cutepy.simulate(sanitize=True, **how) as run:
        kernel = cutepy.compile(Adds(follows), spec, spec, 1)
        for n, lets in enumerate(lets_next_begin):
            kernel(values[n], values[n + 1], lets)
    return values, run


@pytest.mark.parametrize("lets_next_begin", [(1, 1, 1), (0, 0, 0), (1, 0, 1)])
@pytest.mark.parametrize("policy", [None, "late"])
def test_a_launch_finds_what_the_ones_before_have_written(lets_next_begin, policy):
    values, run = add(*lets_next_begin, policy=policy)
    assert all((value == n).all() for n, value in enumerate(values))
    assert not run.hazards, run.report()


def test_who_does_not_wait_is_told():
    with pytest.raises(HazardError) as caught:
        add(1, 1, follows=False)
    assert all("griddepcontrol.wait" in hazard.diagnosis.wanted for hazard in caught.value.hazards)
