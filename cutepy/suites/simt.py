"""A kernel of plain threads, for `cutepy bench sim`: rounds of a store to shared memory, a load, and two barriers.

It has no tensor cores and no copies, which take most of the time of others: what it costs is dispatch, and what the
sanitizer asks of each access and each barrier.
"""

import numpy as np

BLOCK = 256

_PTX = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry rounds(.param .u64 x, .param .u64 y, .param .u32 count)
{
.reg .pred %p<2>; .reg .b32 %r<12>; .reg .f32 %f<4>; .reg .b64 %rd<6>;
.shared .align 16 .b8 words[1024];
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r9, [count];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
mad.lo.u32 %r4, %r1, %r2, %r3; mul.wide.u32 %rd3, %r4, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
mov.u32 %r5, words; shl.b32 %r6, %r3, 2; add.u32 %r7, %r5, %r6; xor.b32 %r8, %r6, 128; add.u32 %r8, %r8, %r5;
mov.f32 %f3, 0f00000000; mov.u32 %r10, 0;
ROUND:
ld.global.f32 %f1, [%rd4];
bar.sync 0;
st.shared.f32 [%r7], %f1;
bar.sync 0;
ld.shared.f32 %f2, [%r8];                            // of the warp beside
fma.rn.f32 %f3, %f1, %f2, %f3;
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, %r9; @%p1 bra ROUND;
st.global.f32 [%rd5], %f3;
ret;
}
"""


class Rounds:
    """Each thread multiplies its number with that of a thread of the next warp, and adds it up, round by round.

    Parameters
    ----------
    ctas, rounds : int
    """

    def __init__(self, ctas: int, rounds: int) -> None:
        from cutepy.frontends import load_ptx

        self._module, self._ctas, self._rounds = load_ptx(_PTX), ctas, rounds
        self.x = (np.arange(ctas * BLOCK) % 7).astype(np.float32)
        self.y = np.zeros_like(self.x)

    def __call__(self) -> None:
        """Launch it, in the simulator that is active."""
        arguments = self.x, self.y, np.uint32(self._rounds)
        self._module.launch("rounds", grid=self._ctas, block=BLOCK, args=arguments)

    def is_right(self) -> bool:
        """Tell whether the sums are exact."""
        beside = self.x[np.arange(len(self.x)) ^ 32]
        return bool((self.y == self._rounds * self.x * beside).all())
