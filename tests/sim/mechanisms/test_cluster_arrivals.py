"""CTAs of a cluster that arrive at one barrier, all with the same address."""

import numpy as np
import pytest

from tests.sim.opcode_runner import launch

ARRIVALS = {
    "mbarrier.arrive.shared::cluster.b64 _, [%r4];": 32,
    "mbarrier.arrive.shared::cluster.b64 _, [%r4], 3;": 96,
    "@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4];": 1,
    "@%p1 mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r4], 0;": 1,
}


@pytest.mark.parametrize("arrival", ARRIVALS, ids=["uniform", "count", "one lane", "expect_tx"])
def test_each_cta_counts(arrival):
    out = np.zeros(4, np.uint32)
    body = f"""mov.u32 %r10, smem; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r7, %ctaid.x;
    ld.param.u64 %rd60, [p0]; mad.wide.u32 %rd60, %r7, 4, %rd60;
    setp.eq.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r2, 0;
    @%p1 mbarrier.init.shared.b64 [%r10], {2 * ARRIVALS[arrival]};
    barrier.cluster.arrive; barrier.cluster.wait;
    mapa.shared::cluster.u32 %r4, %r10, 0;
    {arrival}
    @%p2 bra END;
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
    @!%p3 bra WAIT;
    st.global.u32 [%rd60], 1;
    END: barrier.cluster.arrive; barrier.cluster.wait;"""
    launch(body, out, grid=4, cluster=2, smem_bytes=128)
    assert out.tolist() == [1, 0, 1, 0]
