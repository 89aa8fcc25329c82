"""Lanes that wait for a lock: all that wait go around once for each that gets it, together."""

import time

import numpy as np
import pytest

from tests.sim.kernels.launching import launch

_ADD = """
ld.volatile.global.u32 %r2, [%rd1];
add.u32 %r2, %r2, 1;
st.volatile.global.u32 [%rd1], %r2;
membar.gl;
"""

_LOCK = f"""
AGAIN:
atom.global.cas.b32 %r1, [%rd0], 0, 1;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra AGAIN;
{_ADD}
atom.global.exch.b32 %r3, [%rd0], 0;
"""

_LOCK_IN_A_LOOP = f"""
mov.u32 %r9, 0;
AGAIN:
atom.global.cas.b32 %r1, [%rd0], 0, 1;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra NEXT;
{_ADD}
atom.global.exch.b32 %r3, [%rd0], 0;
mov.u32 %r9, 1;
NEXT:
nanosleep.u32 100;
setp.eq.u32 %p2, %r9, 0;
@%p2 bra AGAIN;
"""

_TICKET = f"""
atom.global.add.u32 %r1, [%rd0+4], 1;
AGAIN:
ld.acquire.gpu.global.u32 %r2, [%rd0];
setp.ne.u32 %p1, %r1, %r2;
@%p1 bra AGAIN;
{_ADD}
atom.global.add.u32 %r3, [%rd0], 1;
"""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_LOCK, id="lock", marks=pytest.mark.integration),
        pytest.param(_LOCK_IN_A_LOOP, id="in a loop", marks=pytest.mark.deep),
        pytest.param(_TICKET, id="ticket"),
    ],
)
def test_who_waits_goes_around_twice_for_each_that_gets_it(body):
    """640 lanes in 5 CTAs. Each round that those who wait went around 70 times took 5 s for 256 lanes."""
    lock, count = np.zeros(2, np.uint32), np.zeros(1, np.uint32)
    start = time.process_time()
    run = launch(body, [lock, count], block=(128, 1, 1), grid=(5, 1, 1))
    assert count[0] == 640
    # On average half of the 20 warps wait, three to six instructions around.
    assert run.launches[0].stats["instructions"] < 640 * 10 * 6 * 2.5
    assert time.process_time() - start < 3
