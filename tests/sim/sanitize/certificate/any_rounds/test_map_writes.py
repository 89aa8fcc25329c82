"""Tensor maps that a kernel changes: by what the code follows, or by stores into their words, which it does not."""

import numpy as np
import pytest

from cutepy.layouts.sm90 import TensorMap
from cutepy.sim import DeadlockError, Run
from tests.sim.opcode_runner import launch

BODY = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; setp.ne.u32 %p2, %r2, 0; mov.u32 %r20, 0;
@%p2 bra READY; mbarrier.init.shared.b64 [%r1], 1; fence.mbarrier_init.release.cluster; READY: bar.sync 0;
mov.u32 %r4, 0; mov.u32 %r8, 0; mov.u32 %r50, 0; @!%p2 ld.global.u32 %r50, [%rd1+52]; {before} bar.sync 0;
LOOP: mov.u32 %r30, 0; setp.eq.u32 %p5, %r8, 30; selp.u32 %r41, 0x07000000, %r50, %p5; setp.eq.u32 %p6, %r2, 0;
{change} {show} fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
@%p6 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
@%p6 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1+1024], [%rd1, {{%r20, %r20}}], [%r1];
W: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r4; @!%p3 bra W;
bar.warp.sync -1; xor.b32 %r4, %r4, 1; add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, {rounds}; @%p4 bra LOOP;
"""
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
PUBLISH = """bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r1+512], 128;"""
TO_SHARED = "".join(
    f"@!%p2 ld.global.u32 %r43, [%rd1+{n}]; @!%p2 st.shared.u32 [%r1+{512 + n}], %r43;\n" for n in range(0, 128, 4)
)
STORE, STORE_TO_SHARED = "@%p6 st.global.u32 [%rd1+52], %r41;", "@%p6 st.shared.u32 [%r1+564], %r41;"
SAME = "@%p6 tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 0, 16;"


def certificate_of(before="", change="", show=RELEASE, rounds=24):
    data = np.zeros((8, 32), np.uint16)
    encoded = TensorMap("u16", data.shape[::-1], data.strides[-2::-1], (16, 8), global_address=data.ctypes.data)
    raw = np.zeros(512, np.uint8)
    where = raw[-raw.ctypes.data % 128 :][:256]
    where[:128] = np.frombuffer(np.array([*encoded.encode(), *[0] * 8], np.uint64).tobytes(), np.uint8)
    run = Run((), None, sanitize=True)
    run.adopt(data)
    body = BODY.format(before=before, change=change, show=show, rounds=rounds)
    launch(body, where, run=run, smem_bytes=4096, assembles=False)
    (certificate,) = run.certificates
    assert (certificate.reasons, [str(h) for h in run.hazards]) == ((), [])
    return certificate


@pytest.mark.parametrize(
    "lines",
    [
        {},
        {"change": SAME},
        {"before": SAME.replace("@%p6", "@!%p2")},
        {"before": "@!%p2 st.global.u32 [%rd1+52], %r50;"},
        {"before": TO_SHARED, "show": PUBLISH},
        {"change": "@%p6 st.global.u32 [%rd1+128], %r41;"},
    ],
    ids=["nothing", "replaced", "replaced before", "stored before", "copied before", "stored elsewhere"],
)
def test_maps_of_which_the_code_tells_hold_for_further_rounds(lines):
    assert [one.holds for one in certificate_of(**lines).extends] == [True]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("lines", "store"),
    [
        ({"change": STORE}, "st.global.u32"),
        ({"before": TO_SHARED, "change": STORE_TO_SHARED, "show": PUBLISH}, "st.shared.u32"),
    ],
    ids=["stored", "stored in shared memory"],
)
def test_maps_whose_words_are_stored_in_a_loop_do_not(lines, store):
    (one,) = certificate_of(**lines).extends
    assert one.reason.startswith("tensor maps are written by ")
    assert store in one.reason
    with pytest.raises(DeadlockError):
        certificate_of(**lines, rounds=32)
