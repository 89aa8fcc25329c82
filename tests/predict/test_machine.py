"""The machine in discrete events: no time is below a bound, barriers order, shares hold."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from cutepy.binaries.machine_code import MachineInstruction
from cutepy.predict import gpu_named
from cutepy.predict.code import ALU, FMA, LSU, XU, Action, Step, read_conflicts
from cutepy.predict.costs import Costs
from cutepy.predict.effects import GOLDEN
from cutepy.predict.launch import Predictor
from cutepy.predict.machine import Machine, StuckError
from cutepy.predict.memory import Traffic
from cutepy.predict.rates import Rates
from cutepy.predict.state import Outcome
from cutepy.predict.trace import (
    Arrive,
    Barrier,
    Commit,
    Control,
    CtaTrace,
    Global,
    Load,
    Mma,
    Shared,
    Store,
    Wait,
    WaitGroup,
    WarpTrace,
)
from tests.messages import refuses

H200 = gpu_named("h200")
WARM = {
    "icache.interval": {"32768": 1.0, "65536": 1.0},
    "start.code": {"again": {"2048": 0.0}},
    "branch.jump": {name: {"128": 5.0, "2048": 5.0} for name in ("first", "second")},
    "launch.reads": {"dram": {"1024": 0.0, "2048": 0.0}},
    "start.accesses": {name: {"first": 100.0, "second": 100.0} for name in ("parameters", "global", "tensor_map")},
}
H200 = replace(
    H200, constants=H200.constants | WARM
)  # all code is cached, and first accesses and bytes as fast as others
CLOCK = H200.value("clock.memory_hz")
RATES, ALONE = (Rates.of(H200, active, CLOCK) for active in (132, 1))
STREAM = [Traffic("x", 1e9, 0.0, 1e9, 0.0, 1.0)]


def machine(steps, needed=None, barriers=None, traffic=STREAM):
    return Machine(H200, [[each] for each in steps], needed or {}, barriers or {}, traffic)


def step(slots=1, cycles=None, pipes=(), action=None, waits=()):
    return Step(waits, slots, float(slots if cycles is None else cycles), pipes, (), action, 0)


def run(steps, warps, *, resident=1, times=1, **rest):
    cta = CtaTrace(0, 0, warps)
    return machine(steps, **rest).run([([cta], RATES)] * times, resident, 0.0)


@st.composite
def programs(draw):
    """Draw blocks of steps, and warps that execute some of them, with facts."""
    blocks, kinds = [], []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["", "shared", "global", "mma"]))
        slots = draw(st.integers(1, 24))
        cycles = slots + draw(st.integers(0, 40))
        work = draw(st.dictionaries(st.sampled_from([FMA, ALU, XU]), st.integers(1, 60), max_size=2))
        action = Action(number, 0 if kind in ("shared", "global") else None, None, "lds32") if kind else None
        blocks.append([step(slots, cycles, tuple((p, float(w)) for p, w in work.items()), action)])
        kinds.append(kind)
    warps = []
    for _ in range(draw(st.integers(1, 6))):
        warp = WarpTrace(draw(st.lists(st.integers(0, len(blocks) - 1), min_size=1, max_size=6)))
        for at, block in enumerate(warp.path):
            fact = {
                "shared": Shared(at, draw(st.integers(1, 8))),
                "global": Global(at, "load", 16.0, 16.0, 0, 4.0),
                "mma": Mma(at, "bf16", 64, "ss", 4096),
            }.get(kinds[block])
            if fact is not None:
                warp.facts[block].append(fact)
        warps.append(warp)
    return blocks, warps


@given(programs(), st.integers(1, 3))
def test_no_time_is_below_a_bound(program, resident):
    blocks, warps = program
    out = run(blocks, warps, resident=resident, times=resident)
    alone = [sum(blocks[b][0].cycles for b in warp.path) for warp in warps]
    assert out.cycles >= max(alone)
    for scheduler in range(4):
        own = warps[scheduler::4]
        assert out.cycles >= resident * sum(blocks[b][0].slots for warp in own for b in warp.path)
        for pipe, unit in zip((FMA, ALU, XU), Costs(H200).pipe_units, strict=False):  # the last one is not waited for
            work = sum(w for warp in own for b in warp.path for p, w in blocks[b][0].pipes if p == pipe)
            assert out.cycles >= resident * work - unit
    facts = [fact for warp in warps for several in warp.facts.values() for fact in several]
    wavefronts = sum(fact.wavefronts for fact in facts if isinstance(fact, Shared))
    assert out.sms[0].lsu >= resident * wavefronts * H200.value("smem.wavefront")
    moved = 512 * sum(isinstance(fact, Global) for fact in facts)
    assert out.sms[0].dram_work == pytest.approx(resident * moved * RATES.dram)
    assert out.steps == resident * sum(len(warp.path) for warp in warps)


@given(st.integers(1, 8), st.integers(1, 6))
def test_warps_of_a_scheduler_share_its_slots(warps, blocks):
    out = run([[step(20)]], [WarpTrace([0] * blocks) for _ in range(4 * warps)])
    assert out.cycles == 20 * warps * blocks


def test_a_scoreboard_is_waited_for():
    first, second = step(action=Action(0, 3, None, "lds32")), step(waits=(3,))
    warp = WarpTrace([0, 1])
    warp.facts[0].append(Shared(0, 1))
    out = run([[first], [second]], [warp])
    assert out.cycles >= H200.at("smem.latency", "lds32")
    assert out.path["shared memory"] > 0


def test_a_barrier_waits_for_the_last_and_the_path_goes_there():
    steps = [[step(24, 1000)], [step(action=Action(0, None, None, ""))]]
    late, early = WarpTrace([0, 0, 1]), WarpTrace([1])
    for warp, at in ((late, 2), (early, 0)):
        warp.facts[0] += [Arrive(at, (7,)), Wait(at, 7)]
    out = run(steps, [late, early], needed={7: 2}, barriers={7: Barrier("bar", 0, 0)})
    assert out.cycles >= 2000 + Costs(H200).sync(2)
    assert out.causes["barriers"] >= 2000
    assert out.path["dependencies"] > 1900


def test_a_copy_is_waited_for_and_counts_as_bytes_in_flight():
    steps = [[step(action=Action(0, None, None, ""))], [step(action=Action(1, None, None, ""))]]
    producer, consumer = WarpTrace([0]), WarpTrace([1])
    producer.facts[0].append(Load(0, 16384, 0, 1, ((0, 5, 16384),), 128.0, 128.0))
    consumer.facts[1].append(Wait(0, 5))
    out = run(steps, [producer, consumer], needed={5: 1}, barriers={5: Barrier("mbarrier", 0, 64)})
    least = Costs(H200).tma_latency + 16384 * RATES.dram
    assert out.cycles >= least
    assert out.sms[0].flight >= 16384 * least
    assert max(out.path, key=out.path.get) == "copies"


def test_mmas_queue_and_idle_time_has_causes():
    work = step(24, 500)
    mma = step(action=Action(0, None, None, ""))
    warp = WarpTrace([1, 0, 1, 0, 1])
    warp.facts[0] += [Mma(at, "bf16", 256, "ss", 10240) for at in (0, 2, 4)]
    warp.facts[1] += [Commit(at, "wgmma group") for at in (0, 2, 4)]
    warp.path[:] = [0, 1, 0, 1, 0]
    out = run([[mma], [work]], [warp])
    cycles = H200.at("wgmma.cycles", "bf16", 256, "ss")
    assert out.sms[0].tensor_work == 3 * cycles
    assert sum(out.sms[0].idle.values()) == pytest.approx(1000 - 2 * cycles, abs=20)
    assert max(out.sms[0].idle, key=out.sms[0].idle.get) == "instructions"


MULTIPLY = [[step(action=Action(0, None, None, ""))], [step(action=Action(1, None, None, ""))], [step(24, 300)]]
LONG = H200.at("wgmma.cycles", "bf16", 256, "ss")


def multiplying(path):
    """Return a warp that issues a group of one MMA in blocks 0, and waits for all in blocks 1."""
    warp = WarpTrace(path)
    for at, block in enumerate(path):
        if block == 0:
            warp.facts[0] += [Mma(at, "bf16", 256, "ss", 10240), Commit(at, "wgmma group")]
        elif block == 1:
            warp.facts[1].append(WaitGroup(at, "wgmma group", 0, False))
    return warp


def test_a_warp_works_while_its_mmas_are_in_the_queue():
    out = run(MULTIPLY, [multiplying([0, 0, 0, 0, 2, 1])])
    assert 4 * LONG <= out.cycles <= 4 * LONG + Costs(H200).mma(Mma(0, "bf16", 256, "ss", 0))[1] + 1
    assert out.causes["tensor cores"] > 100  # after its work of 300 cycles


def test_warps_of_a_scheduler_take_turns_at_its_tensor_core():
    four, two, idle = multiplying([0] * 4 + [1]), multiplying([0] * 2 + [1]), WarpTrace([])
    made = Machine(H200, [[each] for each in MULTIPLY], {}, {}, STREAM, keeps_events=True)
    out = made.run([([CtaTrace(0, 0, [four, idle, idle, idle, two])], RATES)], 1, 0.0)
    begun = [event.name.split()[-1] for event in out.events if event.track == "tensor cores"]
    assert begun == ["0", "4", "0", "4", "0", "0"]
    assert 6 * LONG <= out.cycles < 6.5 * LONG


def issued(n, count, fences=()):
    """Return when a warp has issued so many MMAs, of which some are behind a fence."""
    path = [each for m in range(count) for each in ([3] * (m in fences) + [0])]
    warp = WarpTrace([*path, 4])
    for at, block in enumerate(path):
        made = Mma(at, "bf16", n, "ss", 0) if block == 0 else Control(at, "wgmma.fence.sync.aligned")
        warp.facts[0 if block == 0 else 2].append(made)
    warp.facts[3].append(Control(len(path), "griddepcontrol.wait"))
    ends = [[step(action=Action(index, None, None, ""))] for index in (2, 3)]
    return run([*MULTIPLY, *ends], [warp]).waited


@pytest.mark.parametrize("n", [64, 128, 256])
def test_mmas_are_issued_as_measured(n):
    """Six of them wait in the queue; a fence between two groups waits for neither."""
    table = {int(count): row for count, row in H200.constants["wgmma.issue"][str(n)].items()}
    for count, row in table.items():
        late = issued(n, count) - issued(n, 1)
        assert late == pytest.approx(row["first"] - table[1]["first"], abs=4)
        both = issued(n, 2 * count, {count}) - issued(n, count)
        if count > 1:  # the clocks take 14 cycles
            assert both == pytest.approx(row["second"], abs=14)


def test_the_queue_of_mmas_follows_from_two_widths():
    costs = Costs(H200)
    assert (costs.mma_queue, costs.mma_lead) == (6, 28.0)


def test_bytes_that_two_ctas_get_are_in_flight_once():
    ends = []
    for both in (False, True):
        producers = [WarpTrace([0] * 9) for _ in range(2)]
        for rank, producer in enumerate(producers):
            to = tuple((each, 5 + each, 16384) for each in range(2) if both or each == rank)
            producer.facts[0] += [Load(at, 16384, 0, 1, to, 128.0, 128.0) for at in range(9)]
        ctas = [CtaTrace(rank, rank, [producer]) for rank, producer in enumerate(producers)]
        keys = {5 + rank: Barrier("mbarrier", rank, 64) for rank in range(2)}
        made = Machine(H200, [[MULTIPLY[0]]], dict.fromkeys(keys, 18), keys, STREAM, keeps_events=True)
        out = made.run([(ctas, RATES)], 1, 0.0)
        ends.append(max(event.end for event in out.events if event.track == "copies"))
    assert ends[1] == pytest.approx(ends[0], rel=0.01)


def test_a_second_round_begins_when_the_first_ends():
    out = run([[step(10, 100)]], [WarpTrace([0])], resident=2, times=4)
    assert [start for start, _ in sorted(out.spans)] == [0, 0, 100, 100]
    assert out.cycles == 200


@pytest.mark.parametrize(
    ("block", "smem_bytes", "table", "name"),
    [
        ((128, 1, 1), 0, "cta.round", "128"),
        ((4, 4, 16), 0, "cta.round", "256"),
        ((64, 1, 1), 0, "cta.round", "128"),  # the rate of the GPU's CTAs counts apart
        ((32, 32), 0, "cta.round", "1024"),
        ((384, 1, 1), 200_000, "cta.turnaround", "384x200000"),
    ],
)
def test_a_cta_is_replaced_after_a_time_of_its_threads_and_memory(block, smem_bytes, table, name):
    predictor = SimpleNamespace(_gpu=H200, _launch=SimpleNamespace(block=block, smem_bytes=smem_bytes))
    found = H200.constants[table]
    assert Predictor._turnaround(predictor) == found.get("stores", found)[name]


@pytest.mark.parametrize(
    ("programmatic", "begins_early", "room", "hidden"),
    [(True, True, 2, 400), (True, True, 1, 300), (True, False, 2, 0), (False, True, 2, 0)],
)
def test_the_start_of_a_programmatic_launch_hides_behind_the_end_of_the_one_before(
    programmatic, begins_early, room, hidden
):
    """Without room for both, it begins once a CTA has left: here 200 ns after the end, when 500 ns pass in any case."""
    launch = SimpleNamespace(programmatic=programmatic, ctas=132, smem_bytes=0, block=(128, 1, 1))
    predictor = SimpleNamespace(
        _gpu=H200, _launch=launch, _occupancy=SimpleNamespace(ctas_per_sm=room), _turnaround=lambda: 200.0
    )
    out = Outcome(waited=400.0, lets_begin=begins_early)
    assert Predictor._hidden_us(predictor, out, 1e9, 0.5) == pytest.approx(hidden / 1e3)
    counted = {name: {"132x128x0": 500.0} for name in H200.constants["launch.counted"]}
    predictor._gpu = replace(H200, constants=H200.constants | {"launch.counted": counted})
    predictor._shape = "132x128x0"
    predictor._hidden_us = lambda *about: Predictor._hidden_us(predictor, *about)
    assert Predictor._counted_us(predictor, out, 1e9) == pytest.approx((500 - hidden) / 1e3)


def test_ctas_of_an_sm_start_one_after_the_other():
    cta = CtaTrace(0, 0, [WarpTrace([0])])
    out = machine([[step(10, 100)]]).run([([cta], RATES)] * 6, 3, 0.0, 7.0, 150.0)
    assert [start for start, _ in sorted(out.spans)] == [7 + 150 * n for n in range(6)]


def loading(ahead, size):
    """Return the end of a launch that works so long, loads some bytes of device memory, and waits for them."""
    steps = [
        [[step(24, ahead)]],
        [[step(action=Action(0, None, None, ""))]],
        [[step(action=Action(1, None, None, ""))]],
    ]
    warp = WarpTrace([0, 1, 2])
    warp.facts[0].append(Load(1, size, 0, 1, ((0, 5, size),), size / 128, size / 128))
    warp.facts[1].append(Wait(2, 5))
    made = Machine(H200, steps, {5: 1}, {5: Barrier("mbarrier", 0, 64)}, STREAM, credit=2000.0)
    return made.run([([CtaTrace(0, 0, [warp])], RATES)], 1, 0.0).cycles


def test_no_sm_catches_up_on_the_time_before_its_first_load():
    size = 1 << 16
    assert loading(1000.0, size) - loading(100.0, size) == pytest.approx(900.0)


@pytest.mark.parametrize(("late", "catches_up"), [(1.0, False), (0.0, True)])
def test_an_sm_catches_up_on_l2_and_not_on_device_memory(late, catches_up):
    """A box after a pause takes as long as one at once if it comes from device memory, as all SMs have paused."""
    pause, traffic = 9000.0, [Traffic("x", 1e9, 0.0, 1e9 * late, 0.0, late)]
    cycles = {0: 1, 1: pause, 2: 1}
    steps = [[[step(1, each, action=Action(number, None, None, ""))]] for number, each in cycles.items()]
    warp = WarpTrace([0, 1, 2])
    for at in (0, 1):
        warp.facts[at].append(Load(at, 65536, 0, 8, ((0, 5 + at, 65536),), 512.0, 512.0))
    warp.facts[2].append(Wait(2, 6))
    barriers = {key: Barrier("mbarrier", 0, 64) for key in (5, 6)}
    made = Machine(H200, steps, {5: 1, 6: 1}, barriers, traffic, credit=pause)
    waited = made.run([([CtaTrace(0, 0, [warp])], RATES)], 1, 0.0).cycles - pause
    assert (waited < 65536 * (RATES.dram if late else RATES.tma)) == catches_up


def test_device_memory_takes_fewer_cycles_of_a_slower_clock():
    ends = []
    for clock in (H200.value("clock.idle_hz"), H200.value("clock.idle_hz") / 2):
        warp = WarpTrace([0, 1])
        warp.facts[0].append(Global(0, "load", 4.0, 4.0, 0, 1.0))
        program = [[step(action=Action(0, 0, None, "ldg32"))], [step(waits=(0,))]]
        ends.append(machine(program).run([([CtaTrace(0, 0, [warp])], Rates.of(H200, 132, clock))], 1, 0.0).cycles)
    late = H200.value("dram.latency") - H200.value("l2.latency") + Costs(H200).later(1.0, (0.5 + GOLDEN) % 1.0)
    assert ends[0] - ends[1] == pytest.approx(late / 2, abs=5)


def accesses(kind, name, count, **fact):
    """Run so many accesses of a warp, on one SM alone; returns the outcome."""
    warp = WarpTrace([0] * count)
    sectors = fact.pop("sectors")
    warp.facts[0] += [Global(at, kind, sectors, sectors, 0, **fact) for at in range(count)]
    return machine([[step(action=Action(0, 0, None, name))]]).run([([CtaTrace(0, 0, [warp])], ALONE)], 1, 0.0)


@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16, 32])
def test_a_load_takes_a_cycle_for_each_line_that_it_touches(stride):
    """As measured: lanes so many words apart."""
    lines, sectors = min(32, stride), min(32.0, 4.0 * stride)
    out = accesses("load", "ldg32", 10, sectors=sectors, lines=lines)
    assert out.sms[0].pipe_work[LSU] / 10 == pytest.approx(H200.at("global.sectors", str(stride)), rel=0.03)


@pytest.mark.parametrize(("name", "lines"), [("stg32", 1), ("stg64", 2), ("stg128", 4)])
def test_stores_leave_an_sm_at_their_interval_and_keep_the_lsu_for_their_lines(name, lines):
    out = accesses("store", name, 100, sectors=4.0 * lines, lines=lines)
    assert out.stored / 100 == pytest.approx(H200.at("global.interval", name), rel=0.05)
    assert out.sms[0].pipe_work[LSU] / 100 == pytest.approx(lines, rel=0.03)


@pytest.mark.parametrize(("footprint", "pitch"), [(4e6, "4096"), (64e6, "16384")])
def test_stores_of_parts_of_sectors_take_as_long_as_measured(footprint, pitch):
    warp = WarpTrace([0])
    warp.facts[0].append(Global(0, "store", 32.0, 32.0, 0, 32, 32.0))
    traffic = [Traffic("out", 0.0, footprint, 0.0, footprint, 0.0)]
    rates = Rates.of(H200, 132, CLOCK)
    program = [[[step(action=Action(0, None, None, "stg32"))]]]
    (sm,) = Machine(H200, program, {}, {}, traffic).run([([CtaTrace(0, 0, [warp])], rates)], 1, 0.0).sms
    assert 32 * 4 * 132 * CLOCK / sm.l2_work == pytest.approx(H200.at("l2.part_writes", pitch))


def test_boxes_that_store_parts_of_sectors_take_as_long_as_stores_of_threads():
    """Rows of 48 bytes have half a sector each, whose rest L2 reads."""
    found = []
    for parts in (0.0, 64.0):
        warp = WarpTrace([0])
        warp.facts[0].append(Store(0, 64 * 48, 0, 64.0, parts))
        traffic = [Traffic("out", 0.0, 4e6, 0.0, 4e6, 0.0)]
        program = [[[step(action=Action(0, None, None, ""))]]]
        (sm,) = Machine(H200, program, {}, {}, traffic).run([([CtaTrace(0, 0, [warp])], RATES)], 1, 0.0).sms
        found.append(sm.l2_work)
    part = Costs(H200).part_of_sector(4e6)
    assert found == pytest.approx([64 * 48 * RATES.l2_write, 64 * (32 + part) * RATES.l2_write])


@pytest.mark.parametrize("row_bytes", [16, 32, 64, 128])
def test_tma_asks_for_one_row_after_the_other(row_bytes):
    rows = 8192 // row_bytes
    warp = WarpTrace([0] * 4)
    warp.facts[0] += [Load(at, 8192, 0, 1, ((0, 5, 8192),), float(rows), float(rows)) for at in range(4)]
    steps, barriers = [[step(action=Action(0, None, None, ""))]], {5: Barrier("mbarrier", 0, 64)}
    alone = Machine(H200, [steps], {5: 4}, barriers, STREAM)
    (sm,) = alone.run([([CtaTrace(0, 0, [warp])], ALONE)], 1, 0.0).sms
    latency = H200.constants["tma.latency_swizzle"]
    each = max(8192 * ALONE.port, rows * (latency["32"] - latency["64"]) / 128)
    assert sm.tma == pytest.approx(4 * each, abs=5)


def test_a_barrier_that_nobody_completes_is_an_error():
    warp = WarpTrace([0])
    warp.facts[0] += [Arrive(0, (7,)), Wait(0, 7)]
    with refuses(StuckError):
        run([[step(action=Action(0, None, None, ""))]], [warp], needed={7: 2}, barriers={7: Barrier("mbarrier", 0, 64)})


def test_a_jump_to_new_code_is_waited_for_once_by_all_warps():
    """Code behind other code comes with it; a jump takes some cycles, and a far one as many as the first code."""
    code = {"again": {"1024": 200.0, "2048": 200.0, "4096": 500.0}}
    jump = {"first": {"128": 25.0, "2048": 35.0}, "second": {"128": 15.0, "2048": 15.0}}
    gpu = replace(H200, constants=H200.constants | {"start.code": code, "branch.jump": jump})
    program = [[[step(size)]] for size in (20, 4, 20, 200, 20)]
    cases = {(0, 0): 200, (0, 1, 2): 200, (0, 2, 0, 2): 210, (0, 2, 3, 1): 210, (2, 4): 400 + 10}
    for path, waited in cases.items():
        cta = CtaTrace(0, 0, [WarpTrace([*path]), WarpTrace([*path])])
        out = Machine(gpu, program, {}, {}, STREAM).run([([cta], RATES)], 1, 0.0)
        assert out.causes["instruction cache"] == 2 * waited
        assert out.cycles == waited + sum(program[block][0][0].slots for block in path)


def test_predicated_instructions_are_not_jumped_over():
    jump = {"first": {"128": 205.0}, "second": {"128": 5.0}}
    code = {"start.code": {"again": {"2048": 200.0}}, "branch.jump": jump}
    gpu = replace(H200, constants=H200.constants | code)
    program = [[[step(size)]] for size in (20, 4, 20, 9, 20)]
    for falls, waited in ((), 3), ([True] * 5, 2), ([False] * 5, 3):  # 9 instructions are more than a predicate skips
        cta = CtaTrace(0, 0, [WarpTrace([0, 2, 4])])
        out = Machine(gpu, program, {}, {}, STREAM, falls=falls).run([([cta], RATES)], 1, 0.0)
        assert out.causes["instruction cache"] == pytest.approx(200 * waited, abs=5)


@pytest.mark.parametrize(
    ("operands", "kept", "conflicts", "after"),
    [
        ("R19, R6, R19, R10", {}, 1, {}),  # two even registers
        ("R16, R2.reuse, R16, R17", {}, 1, {0: 2}),
        ("R16, R2.reuse, R16, R17", {0: 2}, 0, {0: 2}),
        ("R9, R7, R7", {}, 0, {}),
        ("R3, -R5, |R7|, R9", {}, 2, {}),
    ],
)
def test_operands_of_a_bank_are_read_one_after_the_other(operands, kept, conflicts, after):
    i = MachineInstruction("FFMA", operands, 1, False, None, 4, False, None, None, ())
    assert read_conflicts(i, kept) == (conflicts, after)
    assert read_conflicts(replace(i, opcode="LDG.E", sets=1), kept) == (0, {})


def test_a_scheduler_issues_nothing_while_operands_are_read():
    blocks = [[step(4, 4)], [step(4, 4)._replace(conflicts=4)]]
    ends = [run(blocks, [WarpTrace([block] * 10) for _ in range(32)]).cycles for block in (0, 1)]
    assert ends[1] == 2 * ends[0]


def test_what_all_ctas_read_comes_to_an_sm_once():
    traffic = [Traffic("weights", 0.0, 0.0, 0.0, 0.0, 1.0, in_l1=True)]
    warps = [WarpTrace([0, 1]) for _ in range(2)]
    for warp, new in zip(warps, (4.0, 0.0), strict=True):
        warp.facts[0].append(Global(0, "load", 4.0, new, 0, 1.0))
    program = [[[step(action=Action(0, 0, None, "ldg32"))]], [[step(waits=(0,))]]]
    made = Machine(H200, program, {}, {}, traffic).run([([CtaTrace(0, 0, warps)], RATES)] * 2, 1, 0.0)
    first, second = (end - start for start, end in made.spans)
    assert first > H200.value("dram.latency") - 50
    assert second < 2 * H200.value("l1.latency")


def test_alu_instructions_take_longer_beside_mmas():
    slower = Costs(H200).beside_mmas[ALU]
    assert 1.5 < slower < 2.5
    for mmas in (0, 20):
        multiplying = WarpTrace([0] * mmas)
        multiplying.facts[0] += [Mma(at, "bf16", 256, "ss", 0) for at in range(mmas)]
        others = WarpTrace([1] * 20)
        warps = [multiplying, *[WarpTrace([])] * 3, others]
        made = Machine(
            H200,
            [[[step(action=Action(0, None, None, ""))]], [[step(8, 8, pipes=((ALU, 16.0),))]]],
            {},
            {},
            STREAM,
            keeps_events=True,
        )
        events = made.run([([CtaTrace(0, 0, warps)], RATES)], 1, 0.0).events
        end = next(event.end for event in events if event.track.endswith("warp 4") and event.name == "runs")
        assert end == pytest.approx(20 * 16 * (slower if mmas else 1.0), rel=0.12)


@pytest.mark.parametrize("fetches_maps", [False, True])
def test_the_first_box_waits_for_the_tensor_map_unless_it_was_fetched(fetches_maps):
    slow = H200.constants["start.accesses"] | {"tensor_map": {"first": 700.0, "second": 100.0}}
    gpu = replace(H200, constants=H200.constants | {"start.accesses": slow})
    steps = [[[step(action=Action(0, None, None, ""))]], [[step(action=Action(1, None, None, ""))]]]
    ends = []
    for loads in (1, 2):
        producer, consumer = WarpTrace([0] * loads), WarpTrace([1])
        for at in range(loads):
            producer.facts[0].append(Load(at, 1024, 0, 1, ((0, 5, 1024),), 8.0, 8.0))
        consumer.facts[1].append(Wait(0, 5))
        made = Machine(gpu, steps, {5: loads}, {5: Barrier("mbarrier", 0, 64)}, STREAM, fetches_maps=fetches_maps)
        ends.append(made.run([([CtaTrace(0, 0, [producer, consumer])], RATES)], 1, 0.0).cycles)
    least = Costs(H200).tma_latency
    assert (ends[0] >= least + 600) == (not fetches_maps)
    assert ends[1] - ends[0] < 200


def test_rows_outside_of_a_tensor_keep_l2_busy_while_all_sms_load_them():
    table = {"apart": {"1": 1000.0, "64": 100.0}}
    gpu = replace(H200, constants=H200.constants | {"tma.outside": table})
    for active in (132, 33):
        rates = Rates.of(H200, active, CLOCK)
        warp = WarpTrace([0] * 8)
        warp.facts[0] += [Load(at, 8192, 0, 1, ((0, 5, 8192),), 1.0, 1.0, 63 * 128.0) for at in range(8)]
        program = [[[step(action=Action(0, None, None, ""))]]]
        machine = Machine(gpu, program, {5: 8}, {5: Barrier("mbarrier", 0, 64)}, STREAM)
        (sm,) = machine.run([([CtaTrace(0, 0, [warp])], rates)], 1, 0.0).sms
        assert sm.l2_work == pytest.approx(8 * 1000 * active / 132)


def test_a_box_beyond_its_tensor_takes_nothing_of_l2_and_fills_shared_memory():
    warp = WarpTrace([0] * 4)
    warp.facts[0] += [Load(at, 8192, 0, 1, ((0, 5, 8192),), 0.0, 0.0, 8192.0) for at in range(4)]
    barriers = {5: Barrier("mbarrier", 0, 64)}
    out = run([[step(action=Action(0, None, None, ""))]], [warp], needed={5: 4}, barriers=barriers)
    assert out.sms[0].l2_work == out.sms[0].dram_work == 0
    assert out.sms[0].port_work == pytest.approx(4 * 8192 * RATES.port)


def test_rows_that_begin_amid_a_line_take_more_of_l2():
    found = []
    for lines in (64.0, 128.0):
        warp = WarpTrace([0])
        warp.facts[0].append(Load(0, 8192, 0, 1, ((0, 5, 8192),), lines, 64.0))
        out = run(
            [[step(action=Action(0, None, None, ""))]], [warp], needed={5: 1}, barriers={5: Barrier("mbarrier", 0, 64)}
        )
        found.append(out.sms[0].l2_work)
    across = H200.constants["tma.pitch"]["l2"]["across"]
    assert found[1] / found[0] == pytest.approx(across["0"] / across["16"])


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=20))
def test_device_memory_loses_ever_more_and_no_more_than_a_microsecond_until_it_streams(sizes):
    rates = Rates.of(gpu_named("h200"), 132, CLOCK)
    lost = [rates.lost(size) for size in sorted(sizes)]
    assert lost == sorted(lost)
    assert lost[-1] <= 1e-6 * CLOCK
    assert rates.lost(0.0) == 0.0 < rates.lost(1e6)


def test_the_time_of_a_programmatic_wait_is_known():
    blocks = [[step(24, 300, action=Action(0, None, None, ""))], [step(24, 100)]]
    warp = WarpTrace([0, 1])
    warp.facts[0] += [Control(0, "griddepcontrol.wait"), Control(0, "griddepcontrol.launch_dependents")]
    out = run(blocks, [warp])
    assert (out.waited, out.lets_begin, out.cycles) == (300, True, 400)


def test_code_that_is_not_cached_is_fetched():
    gpu = replace(H200, constants=H200.constants | {"icache.interval": {"1024": 1.0, "2048": 3.0}})
    blocks = [[step(24, 24)] for _ in range(4)]  # 384 bytes each, of which the cache has two
    for path, misses in (([0, 1, 0, 1], 0), ([0, 1, 2, 3] * 2, 4)):  # the first ones come from L2, free here
        cta = CtaTrace(0, 0, [WarpTrace(path)])
        out = Machine(gpu, [[each] for each in blocks], {}, {}, STREAM).run([([cta], RATES)], 1, 0.0)
        assert out.causes["instruction cache"] == misses * 24 * 2
        assert out.cycles == 24 * len(path) + misses * 48


class OfConstants(Predictor):
    """Predictor of a launch of 264 CTAs on a GPU of which each measurement took the same time."""

    _shape = "x"

    def __init__(self, **changes):
        table, early = {"x": 2000.0}, ("programmatic", "programmatic, begins early")
        kinds = ("plain", "stores", *early, *(f"{kind}, stores" for kind in early))
        self._launch = SimpleNamespace(programmatic=True, ctas=264, block=(128, 1, 1))
        constants = {"launch.overhead": dict.fromkeys(kinds, table)}
        self._gpu = SimpleNamespace(constants=constants, sms=132, at=lambda *_: 0.0)
        self._size = 1
        vars(self).update(changes)

    def _turnaround(self):
        return 3000.0


@pytest.mark.parametrize(("ctas_per_sm", "us"), [(4, 1.5), (3, 3.0)])
def test_a_launch_that_begins_early_waits_for_room(ctas_per_sm, us):
    """Its CTAs begin when those of the launch before it have left, unless both have room."""
    out = SimpleNamespace(stored=0, cycles=0, waited=500, lets_begin=True)
    launch = OfConstants(_occupancy=SimpleNamespace(ctas_per_sm=ctas_per_sm))
    assert launch._launch_us(out, 1e9) == pytest.approx(us)
    out.waited = 100_000
    assert launch._launch_us(out, 1e9) == pytest.approx(-98.0 if ctas_per_sm == 4 else 3.0)


@pytest.mark.parametrize(("clusters", "last"), [(5, "of 1"), (6, "of 2")])
def test_the_last_round_has_the_bandwidth_of_its_clusters(clusters, last):
    """And the work of its own sample."""
    orders = []

    def run(order, *_):
        orders.append([(sample[0].warps[0].path, rates) for sample, rates in order])
        return SimpleNamespace(cycles=10.0, spans=[(0.0, 10.0)] * len(order))

    samples = [[SimpleNamespace(warps=[SimpleNamespace(path=f"sample {n}")])] for n in range(2)]
    launch = OfConstants(
        _clusters=clusters,
        _groups=2,
        _resident=4,
        _rates=lambda active, _: f"of {active}",
        _machine=lambda _: SimpleNamespace(run=run),
        _starts=lambda _: (0.0, 0.0),
    )
    found = launch._rounds(samples, 1e9, False)
    assert orders == [[("sample 0", "of 2"), ("sample 1", "of 2"), ("sample 0", last)]]
    assert (found.cycles, found.tail) == (10.0, pytest.approx(1 - clusters / 6))
