"""Partial sums of a cluster meet in shared memory: right and clean in any schedule, and what breaks is told."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules, smem  # noqa: E402
from cutepy.device.combining import AddResults, add  # noqa: E402
from cutepy.device.exchange import ClusterSums  # noqa: E402
from cutepy.device.fragment import make_subtile  # noqa: E402
from cutepy.device.pipeline import publish_barriers  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402


class Sums:
    """Y = X summed over the CTAs of a cluster, tile by tile, each of some subtiles of so many registers a thread."""

    def __init__(self, parts, subtiles, registers=4, threads=64):
        self.parts, self.subtiles, self.registers, self.threads = parts, subtiles, registers, threads
        size = rules.exchange_bytes(parts, subtiles, registers, threads)
        self.plan = sm90.SmemPlan.of(sums=sm90.SmemArray(size // 4, 32, 16), barriers=sm90.SmemArray(2, bits=64))

    def combine(self, tidx):
        return add

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        cluster = (1, 1, self.parts)
        self.kernel(x, y).launch(grid=cluster, block=(self.threads, 1, 1), cluster=cluster)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        shared = smem.share(self.plan, sums=cutlass.Float32)
        tidx, part = cute.arch.thread_idx()[0], cute.arch.block_in_cluster_idx()[2]
        shape = self.parts, self.subtiles, self.registers, self.threads
        places = part, cutlass.Int32(0), 1, tidx
        sums = ClusterSums(shared["sums"], shared["barriers"], *shape, *places, combine=self.combine(tidx))
        if tidx == 0:
            sums.initialise()
        publish_barriers((1, 1, self.parts))
        sent, read = sums.sender_state(), sums.reader_state()
        own = cute.make_rmem_tensor((self.registers, 1, 1, self.subtiles), cutlass.Float32)
        for tile in cutlass.range(cute.size(x, mode=[0]), unroll=1):
            for value in cutlass.range_constexpr(cute.size(own)):
                own[value] = x[tile, part, value, tidx]
            if tidx == 0:
                sums.announce()
            sums.send(own, sent)
            sent.advance()
            sums.wait(read)
            read.advance()
            for index in cutlass.range(self.subtiles, unroll_full=True):
                if index % sums.owners == part:
                    rC = own[None, None, None, index]
                    sums.join(rC, index)
                    for register in cutlass.range_constexpr(self.registers):
                        y[tile, index * self.registers + register, tidx] = rC[register]
            sums.release()
        sums.drain(sent)


class Results(Sums):
    """Attention's results of parts of the keys: of each thread 8 registers of O, 2 maxima and 2 sums."""

    def __init__(self, parts, subtiles):
        super().__init__(parts, subtiles, registers=12, threads=128)

    def combine(self, tidx):
        return AddResults(make_subtile((64, 16), 1, tidx), cutlass.Float32(0.5))


def exchange(parts, subtiles, registers=4, tiles=3, policies=(None,)):
    """Run one compiled kernel, sanitized by the first policy; give X, Y of each policy, and the first run."""
    torch.manual_seed(parts)
    x = torch.randn(tiles, parts, subtiles * registers, 64)
    results, runs = [], []
    function = cutepy.compile(Sums(parts, subtiles, registers), x, torch.empty(tiles, subtiles * registers, 64))
    for policy in policies:
        results.append(torch.full((tiles, subtiles * registers, 64), torch.nan))
        with cutepy.simulate(policy=policy, sanitize=not runs) as run:
            function(x, results[-1])
        runs.append(run)
    return x, results, runs[0]


@pytest.mark.parametrize(
    ("parts", "subtiles", "registers"), [(2, 2, 4), (2, 1, 8), (3, 2, 4), (2, 3, 4), pytest.param(8, 4, 4)]
)
def test_sums_are_those_of_all_parts_in_a_fixed_order(parts, subtiles, registers):
    x, (y, *others), run = exchange(parts, subtiles, registers, policies=(None, "late", "youngest", "random:1"))
    assert torch.allclose(y, x.sum(1), rtol=1e-5, atol=1e-5)
    assert not run.hazards, run.report()
    assert all(torch.equal(other, y) for other in others)


@pytest.mark.parametrize(("parts", "subtiles"), [(3, 2), pytest.param(2, 1, marks=pytest.mark.deep)])
def test_results_of_parts_of_the_keys_are_joined_by_their_maxima(parts, subtiles):
    torch.manual_seed(0)
    x = torch.randn(2, parts, subtiles, 12, 128)
    x[:, :, :, 8:10] *= 20
    x[:, :, :, 10:] = x[:, :, :, 10:].abs()
    for seen in ((0, 0), (slice(None), 1)):  # one part has not seen row 0 of a thread, and none row 1 of some threads
        x[0, seen[0], :, 8 + seen[1], ::3] = -torch.inf
        x[0, seen[0], :, 10 + seen[1], ::3] = 0
        x[0, seen[0], :, [2 * seen[1], 2 * seen[1] + 1, 2 * seen[1] + 4, 2 * seen[1] + 5], ::3] = 0
    y = torch.full((2, subtiles * 12, 128), torch.nan)
    with cutepy.simulate(sanitize=True) as run:
        Results(parts, subtiles)(x.flatten(2, 3), y)
    assert not run.hazards, run.report()
    o, maxima, sums = x.double().split((8, 2, 2), 3)
    largest = maxima.amax(1, keepdim=True)
    weights = torch.exp2((maxima - largest.nan_to_num(neginf=0.0)) * 0.5)
    of_rows = weights[:, :, :, [0, 0, 1, 1, 0, 0, 1, 1]]
    want = torch.cat(((o * of_rows).sum(1), largest[:, 0], (sums * weights).sum(1)), 2)
    assert torch.allclose(y.view_as(want).double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ("announce", "uneven-bytes"),
        ("release", "deadlock"),
        ("wait", "unordered-read"),
        ("drain", "unordered-write"),
    ],
)
def test_steps_that_are_left_out_are_told(monkeypatch, broken, kind):
    monkeypatch.setattr(ClusterSums, broken, lambda *_: None)
    with pytest.raises(HazardError) as caught:
        exchange(2, 2)
    assert kind in {hazard.kind for hazard in caught.value.hazards}


@pytest.mark.parametrize(("parts", "registers"), [(1, 4), (2, 6), (17, 4)])
def test_what_can_not_be_exchanged_is_refused(parts, registers):
    with refuses(ValueError):
        ClusterSums(None, None, parts, 1, registers, 64, 0, 0, 1, 0)
