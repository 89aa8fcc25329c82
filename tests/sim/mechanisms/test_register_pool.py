"""setmaxnreg: a CTA's registers are traded between its warps, and who asks for more waits until there are."""

import pytest

from cutepy.sim import DeadlockError
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
    with pytest.raises(DeadlockError, match=rf"{more} registers a thread: launched with 168"):
        run(more, less)


def test_without_a_limit_of_threads_it_means_nothing():
    """ISA, "setmaxnreg": the kernel must have been launched with a valid maximum number of registers."""
    run(240, None, directives="")


def test_maxnreg_says_how_many_there_are():
    with pytest.raises(DeadlockError, match="launched with 128"):
        run(200, 64, directives=".maxnreg 128")
