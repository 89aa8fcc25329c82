"""Bulk copies: what observers see of those between CTAs, and where their mbarriers may be."""

import numpy as np
import pytest

from cutepy.sim import MemoryAccessError, Observer
from cutepy.sim.machine.policies import LateCompletion
from tests.messages import refuses
from tests.sim.kernels.launching import launch

START = """mov.u32 %r0, smem; mov.u32 %r8, %cluster_ctarank; mov.u32 %r1, %tid.x; setp.ne.u32 %p0, %r1, 0;
@!%p0 mbarrier.init.shared.b64 [%r0], 1;"""


TWO_LANES = f"""{START} mul.lo.u32 %r3, %r1, 64; add.u32 %r3, %r3, %r0; cvt.u64.u32 %rd1, %r1;
mad.lo.u64 %rd1, %rd1, 64, %rd0; setp.lt.u32 %p2, %r1, 2; bar.sync 0;
@!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], BYTES; bar.sync 0;
@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3+64], [%rd1], 64, [%r0];
W0: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r0], 0; @!%p3 bra W0;
"""
SECOND = """@!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 64;
W1: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r0], 1; @!%p3 bra W1;
"""


def words():
    """Return words in memory that is aligned as bulk copies need it."""
    data = np.zeros(128, np.uint32)
    return data[-data.ctypes.data % 16 // 4 :]


class Issued(Observer):
    def __init__(self):
        self.lanes = []

    def on_issue(self, operation):
        self.lanes.append(operation.threads.ids.tolist())


@pytest.mark.parametrize(
    ("policy", "lanes"), [(None, [[0, 1]]), (LateCompletion(), [[0], [1]])], ids=["at issue", "late"]
)
def test_copies_of_lanes_are_one_operation_where_they_complete_together(policy, lanes):
    seen = Issued()
    launch(TWO_LANES.replace("BYTES", "128"), [words()], smem=1024, observers=[seen], policy=policy)
    assert seen.lanes == lanes


def test_copies_of_lanes_between_which_a_phase_ends_are_apart():
    """The first copy completes a phase, and the second one's bytes count in the next."""
    seen = Issued()
    body = TWO_LANES.replace("BYTES", "64") + SECOND
    launch(body, [words()], smem=1024, observers=[seen])
    assert seen.lanes == [[0], [1]]


class Accesses(Observer):
    def __init__(self):
        self.seen = []

    def on_access(self, access):
        if access.proxy == "async":
            self.seen.append((access.operation, access.addresses.item(), access.size_bytes))


def test_copies_to_a_peer_are_observed_in_both_ctas():
    """From byte 128 of one CTA to byte 256 of the other; 1024 bytes of shared memory each."""
    seen = Accesses()
    body = f"""{START} barrier.cluster.arrive; barrier.cluster.wait; setp.ne.u32 %p1, %r8, 0; or.pred %p0, %p0, %p1;
    @%p0 bra END; mapa.shared::cluster.u32 %r2, %r0, 1;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2+256], [%r0+128], 32, [%r2];
    END: barrier.cluster.arrive; barrier.cluster.wait;"""
    launch(body, smem=1024, grid=(2, 1, 1), cluster=(2, 1, 1), observers=[seen])
    assert seen.seen == [("read", 128, 32), ("write", 1024 + 256, 32)]


@pytest.mark.parametrize("offset", [1, 4, 12])
def test_an_mbarrier_that_is_not_aligned(offset):
    body = f"""{START} @%p0 bra END;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0+128], [%rd0], 16, [%r0+{offset}]; END:"""
    data = np.zeros(16, np.uint32)
    with refuses(MemoryAccessError):
        launch(body, [data[-data.ctypes.data % 16 // 4 :]], smem=1024)
