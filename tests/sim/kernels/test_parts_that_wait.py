"""A part of a warp or warpgroup that waits for ever is a deadlock, not a collective that lanes miss."""

import pytest

from cutepy.sim import DeadlockError, SimulationError
from tests.messages import pins, refuses

from .launching import launch

_WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p0, [%r10], 0; @!%p0 bra WAIT; MEET:"
_INIT = """mov.u32 %r1, %tid.x; mov.u32 %r10, smem; setp.eq.u32 %p3, %r1, 0;
@%p3 mbarrier.init.shared.b64 [%r10], 1; bar.sync 0;"""
_TAKEN_TOGETHER = {
    "wgmma": """mov.u64 %rd10, 0x1000080000; setp.ne.u32 %p1, 0, 0; wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r4, %r5}, %rd10, %rd10, %p1, 1, 1, 0, 0;""",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r10];",
    "mma": """mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r4, %r5}, {%r6},
        {%f0, %f1, %f2, %f3};""",
}


@pytest.mark.parametrize(("name", "waiting"), [("wgmma", 32), ("wgmma", 1), ("ldmatrix", 1), ("mma", 1)])
def test_a_part_that_waits_for_ever_is_a_deadlock(name, waiting):
    with pytest.raises(DeadlockError) as error:
        launch(
            f"{_INIT} setp.ge.u32 %p2, %r1, {waiting}; @%p2 bra MEET; {_WAIT} {_TAKEN_TOGETHER[name]}",
            block=(128, 1, 1),
            smem=4096,
        )
    pins(str(error.value))


@pytest.mark.parametrize("name", _TAKEN_TOGETHER)
def test_a_part_that_comes_alone_is_told(name):
    with refuses(SimulationError) as error:
        launch(f"{_INIT} @%p3 bra OUT; {_TAKEN_TOGETHER[name]} OUT:", block=(128, 1, 1), smem=4096)
    assert not isinstance(error.value, DeadlockError)
