"""Lanes that end while others of their warp wait where the parts would meet."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.kernels.launching import kernel_call, ptx_module

_CALLED = """.func called(.param .u32 n) { .reg .b32 %r<3>; .reg .pred %p<3>;
ld.param.u32 %r1, [n]; setp.ge.u32 %p1, %r1, LIMIT; @%p1 ret;
MORE: sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra MORE; exit; }
"""
_BODY = """mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 1; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %rd0;
{ .param .u32 n; st.param.u32 [n], %r2; call called, (n); } st.global.u32 [%rd1], %r2;"""


@pytest.mark.parametrize("policy", [None, "schedule:1"])
@pytest.mark.parametrize("limit", [2, 17, 32])
def test_who_has_returned_goes_on_when_the_last_other_has_ended(limit, policy):
    """Lanes below a limit count down and end in the function; the others have returned long before."""
    x = np.zeros(64, np.uint32)
    text = ptx_module(_BODY, 1).replace(".visible .entry", f"{_CALLED.replace('LIMIT', str(limit))}.visible .entry", 1)
    run = Run((), policy)
    run.register(x)
    run.launch(kernel_call(text, [x], block=(64, 1, 1)))
    lanes = np.arange(64) + 1
    assert x.tolist() == np.where(lanes >= limit, lanes, 0).tolist()
