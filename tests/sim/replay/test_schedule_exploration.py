"""Launches under many seeded schedules: what differs is told with its seed, and the seed plays it again."""

import json
import mmap
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import cutepy
from cutepy.cli.app import app
from cutepy.sim import ScheduleError
from cutepy.sim.advice import Diagnosis
from cutepy.sim.parallel.footprint import Ranges
from cutepy.sim.replay import schedule_exploration
from cutepy.sim.replay.launch_player import _told
from cutepy.sim.replay.outcomes import Outcome, Request, outcome_of
from cutepy.sim.replay.schedule_exploration import Divergence, Exploration
from cutepy.sim.sanitize.hazards import Hazard, Side
from tests.messages import pins, refuses
from tests.sim.replay.kernels import module

# Each warp takes a ticket, and writes it: which warp gets which depends on who comes first.
TICKETS = """
setp.ne.u32 %p0, %r2, 0; @%p0 bra END;
atom.relaxed.gpu.global.add.u32 %r5, [%rd0], 1;
mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1+4], %r5;
END:
"""
COUNTS = "atom.relaxed.gpu.global.add.u32 %r5, [%rd0], 1;"
# Two warps take two locks in opposite orders.
LOCK = "{label}: atom.acquire.cta.global.exch.b32 %r5, [%rd0+{at}], 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra {label};\n"
FREE = "mov.u32 %r6, 0; st.release.cta.global.u32 [%rd0], %r6; st.release.cta.global.u32 [%rd0+4], %r6;\n"
LOCKS = (
    "setp.ne.u32 %p0, %r2, 0; @%p0 bra END; setp.eq.u32 %p1, %r1, 1; @%p1 bra ON;\n"
    + "".join(LOCK.format(label=f"A{at}", at=at) for at in (0, 4))
    + FREE
    + "bra END;\nON:"
    + "".join(LOCK.format(label=f"B{at}", at=at) for at in (4, 0))
    + FREE
    + "END:"
)


def explored(body, schedules=20, seed=0, block=96):
    x = np.zeros(16, np.uint32)
    try:
        with cutepy.simulate(schedules=schedules, seed=seed) as run:
            module(body).launch("k", 1, block, (x,))
    except ScheduleError as error:
        assert error.explorations == run.explorations
    return run.explorations[0], x


def test_what_depends_on_the_schedule_is_told_with_its_seed():
    exploration, x = explored(TICKETS)
    assert x[:4].tolist() == [3, 0, 1, 2]  # the launch itself is as ever
    differing = {d.seed for d in exploration.divergences}
    assert 0 < len(differing) < 20
    assert {d.kind for d in exploration.divergences} == {"values"}
    for seed in range(20):
        x = np.zeros(16, np.uint32)
        with cutepy.simulate(policy=f"schedule:{seed}"):
            module(TICKETS).launch("k", 1, 96, (x,))
        assert (x[:4].tolist() != [3, 0, 1, 2]) == (seed in differing)
        for one in exploration.divergences:
            if one.seed == seed:
                first = next(n for n in range(1, 4) if x[n] != n - 1)
                assert (
                    f"first [{first}] of a tensor of shape (16,) and type uint32: {x[first]}, not {first - 1}"
                    in one.what
                )
    pins(str(exploration))


def test_what_does_not_depend_on_it_is_the_same_bit_for_bit():
    exploration, x = explored(COUNTS)
    assert exploration.divergences == ()
    assert x[0] == 96
    assert str(exploration) == "launch 0, k: 20 schedules, seeds 0 to 19: the same, bit for bit"


@pytest.mark.integration
def test_the_seeds_are_those_that_were_asked_for():
    every, _ = explored(TICKETS, 20)
    some, _ = explored(TICKETS, 5, seed=10)
    assert some.seeds == range(10, 15)
    assert some.divergences == tuple(d for d in every.divergences if 10 <= d.seed < 15)


def test_schedules_that_hang_are_told():
    exploration, x = explored(LOCKS, block=64)
    assert not x.any()
    assert {d.kind for d in exploration.divergences} == {"hang"}
    pins(exploration.divergences[0].what)
    assert len(exploration.divergences) < 20


def test_a_launch_is_explored_afterwards():
    x = np.zeros(16, np.uint32)
    with cutepy.simulate(replay=True) as run:
        module(COUNTS).launch("k", 1, 96, (x,))
        module(TICKETS).launch("k", 1, 96, (x,))
        x[:] = 0
        found = run.explore(10, seed=3)
        assert found.divergences
        assert (found.launch, found.seeds) == (1, range(3, 13))
        assert not x.any()
    assert run.explorations == ()


SUM = """
cvt.rn.f32.u32 %f0, %r0; rcp.rn.f32 %f0, %f0; setp.eq.u32 %p0, %r0, 0; @%p0 bra END;
atom.relaxed.gpu.global.add.f32 %f1, [%rd0], %f0; END:
"""
# The second warp's addend is doubled where the first has been there.
STEERED = "ld.relaxed.gpu.global.f32 %f1, [%rd0]; setp.ne.f32 %p0, %f1, 0f00000000; @%p0 add.f32 %f0, %f0, %f0;\n"


def test_a_sum_of_floats_by_atomics_depends_on_the_order_and_on_nothing_else():
    exploration, _ = explored(SUM, block=256)
    assert exploration.divergences == ()
    assert exploration.reordered
    pins(str(exploration))


@pytest.mark.integration
def test_a_sum_of_floats_whose_addends_depend_on_the_schedule_differs():
    exploration, _ = explored(SUM.replace("setp.eq", STEERED + "setp.eq"), block=256)
    assert exploration.divergences


@pytest.mark.integration
@pytest.mark.dsl
def test_products_are_the_same_whichever_warpgroups_come_together():
    """BLAS sums 128 rows in another order than twice 64."""
    torch, gemm = pytest.importorskip("torch"), pytest.importorskip("cutepy.kernels.gemm")
    signature = gemm.GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float32")
    kernel = gemm.compile_gemm(gemm.GemmConfig(signature=signature, tile_m=128, tile_n=64, warpgroups=2))
    made = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, 128, generator=made).half() for rows in (128, 64))
    with cutepy.simulate(schedules=2) as run:
        kernel(a, b, None, torch.empty(128, 64), 1, None)
    assert not run.explorations[0].divergences


def test_nothing_is_forked_or_kept_by_default(monkeypatch):
    monkeypatch.setattr("os.fork", lambda: pytest.fail("a process was forked"))
    with cutepy.simulate() as run:
        module(COUNTS).launch("k", 1, 96, (np.zeros(1, np.uint32),))
    assert run.explorations == ()


def test_a_launch_on_memory_that_processes_share_is_simulated_once():
    shared = np.frombuffer(mmap.mmap(-1, 4096), np.uint32)
    with pytest.warns(RuntimeWarning) as told, cutepy.simulate(schedules=1, sanitize=True) as run:
        module(COUNTS).launch("k", 1, 96, (shared,))
    pins(str(told[0].message))
    assert not run.explorations
    assert shared.any()


def test_numbers_below_zero_are_refused():
    with refuses(ValueError), cutepy.simulate(schedules=-1):
        pass


def test_the_command_line_prints_seeds_witnesses_and_reproducers(tmp_path):
    script = tmp_path / "race.py"
    script.write_text(
        "import torch\nfrom tests.sim.replay.kernels import RACE, module\n"
        "module(RACE).launch('k', 1, 64, (torch.zeros(64, dtype=torch.int32, device='cuda'),))\n"
    )
    folder = tmp_path / "found"
    options = ["--schedules", "4", "--seed", "5", "--replay", "--reproducers", str(folder)]
    result = CliRunner().invoke(app, ["sanitize", *options, str(script)])
    assert result.exit_code == 1
    pins(result.output)
    assert "seed 5, values:" in result.output
    assert [path.name for path in folder.iterdir()] == ["00_unordered_read.py"]


def test_explorations_say_what_was_played_and_what_differs():
    one, two = Divergence("schedule:3", "values", "a\nb"), Divergence("first 1", "hang", "c")
    many = tuple(Divergence(f"schedule:{n}", "error", str(n)) for n in range(5))
    seeds = range(2, 22)
    for exploration in (
        Exploration("k", 1, seeds, (), 20),
        Exploration("k", 1, seeds, (), 20, reordered=("schedule:2", "schedule:5"), uncovered=("this", "that"), run=3),
        Exploration("k", 1, seeds, (one,), 20),
        Exploration("k", 1, seeds, many[:3], 20),
        Exploration("k", 1, seeds, (many[0], *many), 20),
        Exploration("k", 0, range(0), (), 7, is_complete=True),
        Exploration("k", 0, range(0), (two,), 7, endless="first 4"),
        Exploration("k", 0, range(0), (two, *many), 7),
    ):
        pins(str(exploration))
        pins(json.dumps(exploration.to_json()))


@pytest.mark.parametrize("is_expected", [False, True])
@pytest.mark.parametrize("with_reads", [False, True])
def test_an_outcome_tells_its_reads_where_they_are_asked_for_and_its_data_unless_expected(with_reads, is_expected):
    memory = np.arange(8, dtype=np.uint32)
    start, end = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    writes, reads = (Ranges.union([np.array([at])], [np.array([at + 8])]) for at in (start, end - 8))
    digest = outcome_of(writes, reads, Request()).digest if is_expected else b""
    found = outcome_of(writes, reads, Request(expected=digest, with_reads=with_reads))
    assert found.digest == outcome_of(writes, reads, Request()).digest
    assert (found.reads is not None) == with_reads
    if with_reads:
        assert [each.tolist() for each in found.reads] == [[end - 8], [end]]
    assert (found.data is None) == is_expected
    if not is_expected:
        assert found.data.view(np.uint32).tolist() == [0, 1]


def test_hazards_of_a_schedule_are_told_without_their_number():
    """It depends on the schedule, and two schedules find the same hazard."""
    side = Side.of_thread("t", (0, 0, 0), 0, None, None)
    race = Hazard("unordered-read", "k", "here", None, side, Diagnosis("made-while-valid"), count=5)
    ((_, found),) = _told(SimpleNamespace(hazards=[race]))
    assert found == replace(race, count=1)


def test_hangs_are_told_once_by_the_hazard_that_names_them(monkeypatch):
    """Of a hang and a deadlock of the same schedule the hazard is told; any other hazard is told beside the hang."""
    found = []
    monkeypatch.setattr(
        schedule_exploration, "reference", lambda snapshot, sanitizes: Outcome(hazards=(("old", None),))
    )
    monkeypatch.setattr(
        schedule_exploration, "difference", lambda expected, outcome, read, memory: outcome.error or None
    )
    comparison = schedule_exploration.Comparison(SimpleNamespace(read=None), None, "k")
    deadlock, race = (
        Hazard(kind, "k", "here", None, Side.of_thread("t", (0, 0, 0), 0, None, None), Diagnosis("made-while-valid"))
        for kind in ("deadlock", "unordered-read")
    )
    for outcome in (
        Outcome(),
        Outcome(error="hangs", is_hang=True),
        Outcome(error="fails", hazards=(("a", deadlock),)),
        Outcome(error="hangs", is_hang=True, hazards=(("a", deadlock), ("old", race))),
        Outcome(error="hangs", is_hang=True, hazards=(("b", race),)),
        Outcome(error="hangs", is_hang=True, hazards=(("c", deadlock), ("d", race))),
    ):
        comparison.add(f"schedule:{len(found)}", outcome)
        told = comparison.divergences[sum(map(len, found)) :]
        found.append([(one.kind, None if one.hazard is None else one.hazard.kind) for one in told])
        assert all(one.seed == len(found) - 1 for one in told)
        assert all(one.hazard is None or one.hazard.witness.schedule == one.policy for one in told)
    assert found == [
        [],
        [("hang", None)],
        [("error", None), ("hazard", "deadlock")],
        [("hang", None)],
        [("hang", None), ("hazard", "unordered-read")],
        [("hazard", "deadlock"), ("hazard", "unordered-read")],
    ]
