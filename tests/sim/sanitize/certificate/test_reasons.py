"""Operations on a barrier, and their threads, as the reasons of a certificate name them."""

import pytest

from tests.messages import pins
from tests.sim.sanitize.certificate.programs import examined

COPY = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+{}], [%rd1], 16, [%r1+{}];"
ANNOUNCED = "mbarrier.arrive.expect_tx.shared.b64 _, [%r1+{}], 16;"
SPIN = "SPIN: ld.relaxed.cta.shared.u32 %r5, [%r1+64]; setp.eq.u32 %p3, %r5, 0; @%p3 bra SPIN;"
"""Goes on later, and learns nothing of what others did."""
BODY = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; setp.eq.u32 %p1, %r2, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.init.shared.b64 [%r1+8], 1; @%p1 st.shared.u32 [%r1+64], 0;
fence.mbarrier_init.release.cluster; bar.sync 0; setp.eq.u32 %p2, %r2, 32; @%p2 bra OTHER; @!%p1 bra END;
{} bra END;
OTHER: {} st.relaxed.cta.shared.u32 [%r1+64], 1; {} END: """
WAIT = "W{0}: mbarrier.try_wait.parity.shared.b64 %p5, [%r1+{0}], 0; @!%p5 bra W{0};"
LATER = ANNOUNCED.format(8) + COPY.format(256, 8) + SPIN + "mbarrier.inval.shared.b64 [%r1];"


@pytest.mark.parametrize(
    ("own", "waits", "named"),
    [
        (ANNOUNCED.format(0) + COPY.format(128, 0) + LATER, WAIT.format(8), "bytes of a copy issued by warp 0, lane 0"),
        (
            "cp.async.ca.shared.global [%r1+128], [%rd1], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];" + LATER,
            WAIT.format(8),
            "asynchronous arrival issued by warp 0, lane 0",
        ),
        (ANNOUNCED.format(0) + COPY.format(128, 0) + LATER, WAIT.format(0), "an operation on it"),  # a try
    ],
)
def test_what_is_not_ordered_before_the_end_of_a_barrier(own, waits, named):
    certificate, _, error = examined(BODY.format(own, waits, ""), block=64)
    assert error is None
    (reason,) = (one for one in certificate.reasons if one.startswith("mbarrier 0x0, inval by warp 0, lane 0"))
    pins(reason)


def test_what_comes_too_early():
    """Copies of a thread that does not wait for those who announce what they bring."""
    own = COPY.format(128, 0) + SPIN + COPY.format(256, 0)
    announces = ANNOUNCED.format(0) + WAIT.format(0)
    again = "st.relaxed.cta.shared.u32 [%r1+64], 1;" + ANNOUNCED.format(0)
    last = "V: mbarrier.try_wait.parity.shared.b64 %p5, [%r1], 1; @!%p5 bra V;"
    _, hazards, error = examined(BODY.format(own, announces, again + last), block=64)
    assert error is None
    (found,) = hazards
    assert (found.kind, [side.what for side in found.sides]) == ("early-arrival", ["arrive", "bytes of a copy"])
    assert [side.warp for side in found.sides] == [1, 0]
