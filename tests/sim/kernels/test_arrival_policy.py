"""cp.async.mbarrier.arrive arrives some time after the copies before it: a policy can delay both."""

import numpy as np
import pytest

from cutepy.sim import CompletionPolicy, Observer

from .launching import launch

BODY = """
mov.u32 %r1, %tid.x; mov.u32 %r0, smem; setp.eq.u32 %p0, %r1, 0;
@%p0 mbarrier.init.shared.b64 [%r0], {count};
bar.sync 0;
mad.lo.u32 %r2, %r1, 4, %r0; mad.wide.u32 %rd2, %r1, 4, %rd0; mad.wide.u32 %rd3, %r1, 4, %rd1;
cp.async.ca.shared.global [%r2+64], [%rd2], 4;
cp.async.mbarrier.arrive{noinc}.shared.b64 [%r0];
{own}
{wait}
ld.shared.u32 %r3, [%r2+64];
st.global.u32 [%rd3], %r3;
"""
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r0], 0; @!%p1 bra WAIT;"
OWN = "mbarrier.arrive.shared.b64 _, [%r0];"


class Late(CompletionPolicy):
    """Complete nothing before somebody waits for it; then the one at a place."""

    def __init__(self, place):
        self._place = place

    def completes_at_issue(self, operation):
        return False

    def choose(self, pending):
        return range(len(pending))[self._place]


class Order(Observer):
    def __init__(self):
        self.issued, self.completed = [], []

    def on_issue(self, operation):
        self.issued.append(operation.instruction.opcode)

    def on_complete(self, operation):
        self.completed.append(operation.instruction.opcode)


@pytest.mark.parametrize("noinc", ["", ".noinc"])
@pytest.mark.parametrize("policy", [None, Late(0), Late(-1)])
def test_who_waits_at_the_mbarrier_sees_the_copy(noinc, policy):
    data, out = np.arange(1, 33, dtype=np.uint32), np.zeros(32, np.uint32)
    own = OWN if not noinc else ""
    body = BODY.format(count=32, noinc=noinc, own=own, wait=WAIT)
    order = Order()
    launch(body, [data, out], smem=256, policy=policy, observers=[order])
    np.testing.assert_array_equal(out, data)
    assert (
        order.completed == order.issued == ["cp.async.ca.shared.global", f"cp.async.mbarrier.arrive{noinc}.shared.b64"]
    )


def test_who_does_not_wait_does_not():
    data, out = np.arange(1, 33, dtype=np.uint32), np.zeros(32, np.uint32)
    body = BODY.format(count=32, noinc=".noinc", own="", wait="")
    launch(body, [data, out], smem=256, policy=Late(0))
    np.testing.assert_array_equal(out, 0)
