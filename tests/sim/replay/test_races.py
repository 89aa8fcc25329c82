"""Small random programs on shared memory: what more than one order can come to has a hazard, and that a witness."""

import itertools
import random

import numpy as np
import pytest

from cutepy.frontends.backend import Simulator
from cutepy.frontends.dsl.execution import executing_on
from cutepy.sim import Run
from tests.sim.replay.kernels import module

CELLS = 3


def program(rng):
    """Draw two warps: phases between barriers, each with operations (cell, value), where no value is a load."""
    fresh = itertools.count(1)

    def operations():
        return [(rng.randrange(CELLS), next(fresh) if rng.random() < 0.5 else None) for _ in range(rng.randrange(3))]

    return [(operations(), operations()) for _ in range(rng.choice((1, 2, 2, 3)))]


def outcomes(phases):
    """Return what all orders within each phase come to: what each warp reads. An oracle."""
    states = {((0,) * CELLS, ((), ()))}
    for pair in phases:
        orders = set(itertools.permutations([n for n, operations in enumerate(pair) for _ in operations]))
        reached = set()
        for (memory, reads), order in itertools.product(states, orders):
            cells, read, left = list(memory), [list(r) for r in reads], [iter(operations) for operations in pair]
            for warp in order:
                cell, value = next(left[warp])
                if value is None:
                    read[warp].append(cells[cell])
                else:
                    cells[cell] = value
            reached.add((tuple(cells), tuple(map(tuple, read))))
        states = reached
    return {reads for _, reads in states}


def as_ptx(phases):
    """Write it: one lane of each warp is it; the cells begin as zeros, and what is read goes to global memory."""
    lines = ["mov.u32 %r5, tile; mov.u32 %r6, 0; setp.eq.u32 %p3, %r0, 0;"]
    lines += [f"@%p3 st.shared.u32 [%r5+{16 * cell}], %r6;" for cell in range(CELLS)]
    count = [0, 0]
    for n, pair in enumerate(phases):
        lines.append("bar.sync 0;")
        for warp, operations in enumerate(pair):
            lines.append(f"setp.ne.u32 %p0, %r0, {32 * warp}; @%p0 bra ON{n}_{warp};")
            for cell, value in operations:
                where = f"[%r5+{16 * cell}]"
                if value is not None:
                    lines.append(f"mov.u32 %r7, {value}; st.shared.u32 {where}, %r7;")
                else:
                    lines.append(
                        f"ld.shared.u32 %r8, {where}; st.global.u32 [%rd0+{64 * warp + 4 * count[warp]}], %r8;"
                    )
                    count[warp] += 1
            lines.append(f"ON{n}_{warp}:")
    return "\n".join(lines), count


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(8, 24))])
def test_what_orders_can_change_has_a_hazard_with_a_witness(seed):
    phases = program(random.Random(seed))
    expected = outcomes(phases)
    body, count = as_ptx(phases)
    x = np.zeros(32, np.uint32)
    run = Run((), None, sanitize=True, replay=True)
    with executing_on(Simulator(run)):
        module(body).launch("k", 1, 64, (x,))
    assert tuple(tuple(x[16 * w : 16 * w + count[w]].tolist()) for w in range(2)) in expected
    if len(expected) > 1:
        assert any(hazard.replay().kind == "values" for hazard in run.hazards)
    else:
        assert all(hazard.replay().what is None for hazard in run.hazards)
        assert run.explore(8).divergences == ()


def test_there_are_programs_of_both_sorts():
    sorts = [len(outcomes(program(random.Random(seed)))) > 1 for seed in range(24)]
    assert 5 < sum(sorts) < 20
