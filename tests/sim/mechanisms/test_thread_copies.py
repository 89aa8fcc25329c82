"""cp.async of lanes that copy different numbers of bytes."""

import numpy as np

from cutepy import load_ptx, simulate
from cutepy.sim.machine.observer import Observer

COPIES = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry copies(.param .u64 x)
{
    .reg .b32 %r<5>; .reg .b64 %d<3>; .shared .align 16 .b8 tile[512];
    ld.param.u64 %d0, [x]; mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1;
    mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %r2, 32, %r0; mad.wide.u32 %d1, %r2, 16, %d0;
    and.b32 %r3, %r2, 3; mul.lo.u32 %r3, %r3, 4;
    cp.async.cg.shared.global [%r1], [%d1], 16, %r3;
    cp.async.wait_all;
    ret;
}
"""


class Reads(Observer):
    """Observer of reads of global memory."""

    def __init__(self):
        self.sizes: dict[int, int] = {}

    def on_access(self, access):
        if (access.operation, access.space) == ("read", "global"):
            for address in np.ravel(access.addresses).tolist():
                self.sizes[address] = access.size_bytes


def test_reads_of_different_sizes_are_observed():
    memory, reads = np.zeros(1024, np.uint8), Reads()
    with simulate(observers=[reads]):
        load_ptx(COPIES).launch("copies", grid=2, block=32, args=(memory,))
    start = memory.ctypes.data
    assert reads.sizes == {start + 16 * n: 4 * (n % 4) for n in range(64) if n % 4}
