"""All schedules of kernels that ask launch control: each request is granted and refused, in each order of requests."""

import numpy as np
import pytest

import cutepy
from cutepy import load_ptx
from tests.messages import pins

# Each CTA takes a tile, asks for the next one and works on its own meanwhile, until it is refused.
# out[tile] is how often a tile was done, out[8 + tile] by whom.
KERNEL = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) {
.reg .b32 %r<20>; .reg .b64 %d<8>; .reg .pred %p<4>; .reg .b128 %q; .shared .align 16 .b8 answer[16];
.shared .align 8 .b64 bar;
ld.param.u64 %d0, [out]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %r0; mov.u32 %r2, 0; mov.u32 %r3, answer;
mov.u32 %r4, bar; mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
AGAIN: mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r3], [%r4];
// own
mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d0, %d1;
ld.global.u32 %r5, [%d1]; add.u32 %r5, %r5, 1; st.global.u32 [%d1], %r5; st.global.u32 [%d1+32], %r0;
// wait
and.b32 %r6, %r2, 1;
WAIT: mbarrier.try_wait.parity.shared.b64 %p0, [%r4], %r6; @!%p0 bra WAIT;
ld.shared.v2.b64 {%d2, %d3}, [%r3]; mov.b128 %q, {%d2, %d3};
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r7, %q;
// next
@%p1 mov.u32 %r1, %r7;
add.u32 %r2, %r2, 1; fence.proxy.async.shared::cta; @%p1 bra AGAIN;
ret; }
"""
DONE = KERNEL[KERNEL.index("mul.wide") : KERNEL.index("// wait")]
NAMED = " st.global.u32 [%d1+32], %r0;"


def explored(text, tiles):
    """Play all schedules; returns the exploration."""
    out = np.zeros(16, np.uint32)
    with cutepy.simulate(replay=True) as run:
        load_ptx(text).launch("k", tiles, 1, [out])
        assert out[:tiles].tolist() == [1] * tiles
        return run.explore(schedules="all")


@pytest.mark.parametrize(("tiles", "first"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_each_tile_is_done_by_whoever_may_be_granted_it(tiles, first):
    """The first so many clusters begin together; each of those beyond goes to one of them, or begins by itself."""
    found = explored(KERNEL, tiles)
    ways = sum(first**granted for granted in range(tiles - first + 1))
    assert found.is_complete
    assert 1 + len(found.divergences) == ways
    assert {one.kind for one in found.divergences} == {"values"}


def test_what_does_not_depend_on_grants_is_the_same_in_all():
    found = explored(KERNEL.replace(NAMED, ""), 4)
    assert (found.is_complete, found.divergences) == (True, ())
    assert found.schedules >= 7


MISTAKES = {
    "refused at once": (
        2,  # a tile is done once the answer is there: the last of a CTA, unless it is the first
        KERNEL.replace(DONE, "").replace(
            "// next", f"setp.ne.u32 %p2, %r2, 0; or.pred %p2, %p2, %p1; @!%p2 ret; {DONE.replace(NAMED, '')}"
        ),
    ),
    "granted twice": (
        4,  # the third tile of a CTA is not done
        KERNEL.replace(DONE, f"setp.gt.u32 %p2, %r2, 1; @%p2 ret; {DONE.replace(NAMED, '')}"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_that_only_some_answers_show_is_found(name):
    tiles, text = MISTAKES[name]
    found = explored(text, tiles)
    assert found.divergences
    pins(str(found))
    out = np.zeros(16, np.uint32)
    with cutepy.simulate(policy=found.divergences[0].policy):
        load_ptx(text).launch("k", tiles, 1, [out])
    assert out[:tiles].tolist() != [1] * tiles


def test_a_choice_that_a_request_does_not_have_is_told():
    """The first request of CTA 0 is granted (0) or refused (1)."""
    policy = next(one.policy for one in explored(KERNEL, 2).divergences)
    out = np.zeros(16, np.uint32)
    with pytest.raises(cutepy.sim.PolicyError) as error, cutepy.simulate(policy=policy.replace("=1", "=2")):
        load_ptx(KERNEL).launch("k", 2, 1, [out])
    pins(str(error.value))
