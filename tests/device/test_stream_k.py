"""Whole tiles and shares of the last ones, summed through a workspace: everything once, right and clean, flags down."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules  # noqa: E402
from cutepy.device.schedulers import Persistent  # noqa: E402
from cutepy.device.stream_k import StreamK  # noqa: E402
from cutepy.device.workspace import WorkspaceSums  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402

THREADS, REGISTERS = 64, 4


@dataclass(frozen=True)
class Summing:
    """Sum values over the K of a tile, or leave the sum of a part; and count how often each tile of K is summed."""

    x: cute.Tensor
    y: cute.Tensor
    counts: cute.Tensor
    sums: WorkspaceSums
    tidx: Any

    def first_state(self, k):
        return cutlass.Int32(0)

    @cute.jit
    def on_tile(self, work, state):
        x, y, counts = self.x, self.y, self.counts
        rC = cute.make_rmem_tensor(REGISTERS, cutlass.Float32)
        rC.fill(0.0)
        for index in cutlass.range(work.k.count, unroll=1):
            place = (work.row, work.column, work.k[index])
            seen = (*place, self.tidx)
            counts[seen] = counts[seen] + 1
            for register in cutlass.range_constexpr(REGISTERS):
                rC[register] = rC[register] + x[(*place, register, self.tidx)]
        sharing = work.sharing
        if sharing.is_finished_here:
            for peer in cutlass.range(sharing.peers, unroll=1):
                self.sums.join(rC, sharing.place + (peer + 1) * sharing.step)
            for register in cutlass.range_constexpr(REGISTERS):
                y[work.row, work.column, register, self.tidx] = rC[register]
        else:
            self.sums.leave(rC, sharing.place)
        return state + 1


class Shared:
    """Y = X summed over K, by a grid of so many CTAs."""

    def __init__(self, ctas):
        self.ctas = ctas

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, counts: cute.Tensor, flags: cute.Tensor, sums: cute.Tensor):
        self.kernel(x, y, counts, flags, sums).launch(grid=(self.ctas, 1, 1), block=(THREADS, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, counts: cute.Tensor, flags: cute.Tensor, sums: cute.Tensor):
        tidx = cute.arch.thread_idx()[0]
        rows, columns, k_tiles = (x.shape[mode] for mode in range(3))
        scheduler = StreamK(Persistent((rows, columns), cutlass.Int32(k_tiles), band_rows=2))
        scheduler.each(Summing(x, y, counts, WorkspaceSums(flags, sums, REGISTERS, THREADS, tidx), tidx))


def workspace(ctas):
    flags = torch.zeros(ctas, rules.FLAGS, dtype=torch.int32)
    return flags, torch.full((ctas * THREADS * REGISTERS,), torch.nan)


def share(extents, ctas, given, **how):
    torch.manual_seed(sum(extents))
    x = torch.randn(*extents, REGISTERS, THREADS)
    y, counts = torch.full_like(x[:, :, 0], torch.nan), torch.zeros(*extents, THREADS, dtype=torch.int32)
    with cutepy.simulate(**how) as run:
        Shared(ctas)(x, y, counts, *given)
    return x, y, counts, run


@pytest.mark.parametrize(("extents", "ctas"), [((1, 1, 10), 3), ((2, 3, 4), 4), ((3, 1, 5), 2), ((1, 2, 1), 3)])
def test_all_is_summed_once_and_the_workspace_serves_again(extents, ctas):
    given, found = workspace(ctas), []
    for policy in (None, "random:1"):
        x, y, counts, run = share(extents, ctas, given, policy=policy, sanitize=policy is None)
        assert (counts == 1).all()
        assert torch.allclose(y, x.sum(2), rtol=1e-4, atol=1e-4)
        assert policy is not None or not run.hazards, run.report()
        assert not given[0].any(), "flags are down again"
        found.append(y)
    assert all(torch.equal(each, found[0]) for each in found)


def test_sums_that_are_fetched_before_they_were_left_are_told(monkeypatch):
    def hasty(self, rC, place):
        lines = self._vectors(place)
        for register in range(REGISTERS):
            rC[register] = rC[register] + lines[register]

    monkeypatch.setattr(WorkspaceSums, "join", hasty)
    with pytest.raises(HazardError) as caught:
        share((1, 1, 40), 3, workspace(3), sanitize=True)
    assert {hazard.kind for hazard in caught.value.hazards} == {"unordered-read"}


@pytest.mark.parametrize(("registers", "threads"), [(6, 64), (0, 64), (4, 48), (4, 1024)])
def test_what_no_workspace_takes_is_refused(registers, threads):
    with refuses(ValueError):
        WorkspaceSums(None, None, registers, threads, 0)
