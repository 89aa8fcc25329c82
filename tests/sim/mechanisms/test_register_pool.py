"""setmaxnreg: a CTA's registers are traded between its warps, and who asks for more waits until there are."""

import pytest

from cutepy.sim import DeadlockError, Run
from cutepy.sim.machine.policies import policy_named
from tests.messages import refuses
from tests.sim.opcode_runner import launch

ROLES = """mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 128; @%p1 bra PRODUCER;
{more}
bra END;
PRODUCER:
{less}
END:
"""
MORE = "setmaxnreg.inc.sync.aligned.u32 {};"
LESS = "setmaxnreg.dec.sync.aligned.u32 {};"


def run(more, less, then="bar.sync 0;", block=384, directives=".reqntid 384, 1, 1"):
    body = ROLES.format(more=MORE.format(more) + then, less=(LESS.format(less) if less else "") + then)
    launch(body, block=block, directives=directives, assembles=False)


@pytest.mark.parametrize(("more", "less"), [(232, 40), (240, 24), (168, None), (160, None)])
def test_what_fits_the_pool_goes_on(more, less):
    """Of 384 threads each has 168 registers at first: two warpgroups share what the third gives back."""
    run(more, less)


@pytest.mark.parametrize(("more", "less"), [(240, 40), (232, 48), (176, None)])
def test_who_asks_for_more_than_there_is_waits_forever(more, less):
    with refuses(DeadlockError):
        run(more, less)


def test_without_a_limit_of_threads_it_means_nothing():
    """ISA, "setmaxnreg": the kernel must have been launched with a valid maximum number of registers."""
    run(240, None, directives="")


def test_maxnreg_says_how_many_there_are():
    with refuses(DeadlockError):
        run(200, 64, directives=".maxnreg 128")


IDLE = "fence.proxy.async;" * 6
MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd2, %rd3, 0, 1, 1, 0, 0;"
WAITS_AND_MEETS = f"""mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 128; @%p1 bra PRODUCER;
setp.ge.u32 %p2, %r1, 128; @%p2 bra SKIP;
{MMA} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
mov.u32 %r6, 1;
SKIP: {MORE.format(240)}
setp.eq.u32 %p3, %r1, 1000; @%p3 bra ON;
mov.u32 %r5, 1;
ON: wgmma.fence.sync.aligned; {MMA} wgmma.commit_group.sync.aligned;
{IDLE}
wgmma.wait_group.sync.aligned 0; bra END;
PRODUCER: {LESS.format(24)}
END:
"""
"""Warpgroups wait for registers together, get them warp by warp, and meet again; after the MMA nothing changes."""


@pytest.mark.parametrize("seed", range(4))
def test_who_has_got_registers_warp_by_warp_waits_no_more(seed):
    run = Run((), policy_named(f"schedule:{seed}"))
    launch(WAITS_AND_MEETS, block=384, directives=".reqntid 384, 1, 1", assembles=False, run=run, smem_bytes=1024)
