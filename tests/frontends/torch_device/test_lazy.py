"""Tensors of the served device that are larger than the host's memory."""

import resource

import torch

from cutepy.frontends import load_ptx, serve_cuda

LAST = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 n) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [n];
    mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd2, %r0, 4096; add.s64 %rd2, %rd0, %rd2;
    mov.u32 %r1, 7; st.global.u8 [%rd2], %r1;
    ret;
}"""


def test_a_tensor_of_40_gb_takes_what_is_touched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serve_cuda(ctas=[-1]):
        x = torch.zeros(40 * 10**9, dtype=torch.uint8, device="cuda")
        ctas = len(x) // 4096
        load_ptx(LAST).launch("k", ctas, 1, (x, len(x)))
        assert int(x[(ctas - 1) * 4096]) == 7
        assert int(x[0]) == 0
        x.zero_()
        assert int(x[(ctas - 1) * 4096]) == 0
        y = torch.empty(3 * 10**9, dtype=torch.int16, device="cuda")[1:-1]
        y[5] = 3
        y.zero_()
        assert int(y[5]) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB
