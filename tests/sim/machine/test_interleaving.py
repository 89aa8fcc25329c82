"""Schedules in which warps overtake each other: what they may come to, all of it, and nothing else."""

import itertools
import random

import numpy as np
import pytest

from cutepy.frontends import load_ptx, simulate
from cutepy.sim import CompletionPolicy, DeadlockError, Observer
from cutepy.sim.machine.interleaving import Interleaving, RandomSchedule
from cutepy.sim.machine.policies import policy_named

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def module(body, shared=""):
    registers = ".reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<8>;"
    return load_ptx(
        f"{HEADER}.visible .entry k(.param .u64 x) {{ {registers} {shared}\nld.param.u64 %rd0, [x];\n"
        f"mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31;\n{body}\nret;\n}}"
    )


def run(body, policy, size=64, block=64, grid=1, shared="", observers=()):
    x = np.zeros(size, np.uint32)
    with simulate(policy=policy, observers=observers):
        module(body, shared).launch("k", grid, block, (x,))
    return x


# Programs of a few warps, each with operations on two cells; what each reads is kept.


def program(rng, warps, length):
    """Draw for each warp a sequence of (operation, cell, value)."""
    return [
        [(rng.choice(("load", "store", "add")), rng.randrange(2), rng.randrange(1, 4)) for _ in range(length)]
        for _ in range(warps)
    ]


def outcomes(warps):
    """Return what all orders of the operations come to: the cells, and what each warp has read. An oracle."""
    found = set()
    for order in set(itertools.permutations([n for n, ops in enumerate(warps) for _ in ops])):
        cells, at, read = [0, 0], [0] * len(warps), [[] for _ in warps]
        for warp in order:
            operation, cell, value = warps[warp][at[warp]]
            at[warp] += 1
            if operation != "store":
                read[warp].append(cells[cell])
            if operation != "load":
                cells[cell] = value if operation == "store" else cells[cell] + value
        found.add((tuple(cells), tuple(map(tuple, read))))
    return found


def as_ptx(warps):
    """Write the program: the first lane of each warp is it; cells are x[0] and x[1], what it reads goes behind."""
    lines = ["setp.ne.u32 %p0, %r2, 0; @%p0 bra END;"]
    for number, operations in enumerate(warps):
        lines.append(f"setp.ne.u32 %p1, %r1, {number}; @%p1 bra NEXT{number};")
        read = 0
        for operation, cell, value in operations:
            where = f"[%rd0+{4 * cell}]"
            if operation == "store":
                lines.append(f"mov.u32 %r3, {value}; st.relaxed.gpu.global.u32 {where}, %r3;")
                continue
            how = f"ld.relaxed.gpu.global.u32 %r{10 + read}, {where};"
            lines.append(
                how if operation == "load" else f"atom.relaxed.gpu.global.add.u32 %r{10 + read}, {where}, {value};"
            )
            read += 1
        lines += [f"st.global.u32 [%rd0+{8 + 32 * number + 4 * n}], %r{10 + n};" for n in range(read)]
        lines += ["bra END;", f"NEXT{number}:"]
    return "\n".join([*lines, "END:"])


def outcome(x, warps):
    read = [sum(operation != "store" for operation, _, _ in operations) for operations in warps]
    return tuple(x[:2].tolist()), tuple(
        tuple(x[2 + 8 * n : 2 + 8 * n + count].tolist()) for n, count in enumerate(read)
    )


@pytest.mark.parametrize("seed", range(2))
def test_schedules_come_to_what_orders_come_to_and_to_nothing_else(seed):
    rng = random.Random(seed)
    warps = program(rng, 2 + seed % 2, 3 - seed % 2)
    expected, body = outcomes(warps), as_ptx(warps)
    kernel = module(body)
    found = set()
    for n in range(300):
        x = np.zeros(64, np.uint32)
        with simulate(policy=RandomSchedule(n)):
            kernel.launch("k", 1, 32 * len(warps), (x,))
        found.add(outcome(x, warps))
        assert found <= expected
        if found == expected:
            break
    assert len(found) >= 0.75 * len(expected)


def test_the_same_seed_is_the_same_schedule_whatever_ran_before():
    body = as_ptx(program(random.Random(4), 3, 3))
    once = [run(body, f"schedule:{n}", block=96).tolist() for n in range(12)]
    assert once == [run(body, RandomSchedule(n), block=96).tolist() for n in range(12)]
    assert len({tuple(x) for x in once}) > 1
    policy, twice = RandomSchedule(7), []
    with simulate(policy=policy):
        for _ in range(2):
            x = np.zeros(64, np.uint32)
            module(body).launch("k", 1, 96, (x,))
            twice.append(x.tolist())
    assert twice == [once[7]] * 2
    assert repr(policy) == "schedule:7"
    assert policy_named("schedule").seed == 0


BARRIER = """
mov.u32 %r5, tile; shl.b32 %r6, %r0, 2; add.u32 %r7, %r5, %r6; st.shared.u32 [%r7], %r0;
{between}
xor.b32 %r8, %r6, 128; add.u32 %r8, %r8, %r5; ld.shared.u32 %r9, [%r8];
cvt.u64.u32 %rd1, %r6; add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r9;
"""
TILE = ".shared .align 8 .b8 tile[512];"


def test_a_missing_barrier_shows_in_each_schedule_and_by_default_in_none():
    expected = (np.arange(64) ^ 32).tolist()
    without, with_it = (BARRIER.format(between=text) for text in ("", "bar.sync 0;"))
    assert run(without, None, shared=TILE).tolist() == expected
    assert run(with_it, None, shared=TILE).tolist() == expected
    for seed in range(10):
        assert run(with_it, f"schedule:{seed}", shared=TILE).tolist() == expected
        assert run(without, f"schedule:{seed}", shared=TILE).tolist() != expected


# Warp 0 copies with TMA's plain sibling, and warp 1 tries once whether it is there.
TRIES_ONCE = """
mov.u32 %r5, tile; add.u32 %r6, %r5, 256; setp.ne.u32 %p0, %r0, 0;
@!%p0 mbarrier.init.shared.b64 [%r6], 1;
bar.sync 0;
@!%p0 mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r6], 128;
@!%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r5], [%rd0], 128, [%r6];
{wait}
shl.b32 %r7, %r0, 2; and.b32 %r8, %r7, 127; add.u32 %r8, %r8, %r5; ld.shared.u32 %r9, [%r8];
cvt.u64.u32 %rd2, %r7; add.u64 %rd2, %rd2, %rd0; st.global.u32 [%rd2+128], %r9;
"""
ONCE = "mbarrier.try_wait.parity.shared.b64 %p1, [%r6], 0;"
UNTIL = f"AGAIN: {ONCE} @!%p1 bra AGAIN;"


def copied(wait, policy):
    x = np.arange(32 + 64, dtype=np.uint32)
    with simulate(policy=policy):
        module(TRIES_ONCE.format(wait=wait), TILE).launch("k", 1, 64, (x,))
    return x[32:].tolist() == [*range(32), *range(32)]


def test_a_try_wait_gives_up_while_a_copy_is_pending():
    assert copied(ONCE, None)
    assert copied(ONCE, "late")
    assert all(copied(UNTIL, f"schedule:{seed}") for seed in range(20))
    assert not all(copied(ONCE, f"schedule:{seed}") for seed in range(20))


def test_a_policy_of_ones_own_may_give_up_as_well():
    class Hasty(CompletionPolicy):
        def completes_at_issue(self, operation):
            return False

        def gives_up(self):
            return True

    assert copied(UNTIL, Hasty())
    assert not copied(ONCE, Hasty())


def test_a_deadlock_of_some_schedules_is_found():
    # Each warp takes two locks, in its own order.
    lock = "{label}: atom.acquire.cta.global.exch.b32 %r5, [%rd0+{at}], 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra {label};\n"
    free = "mov.u32 %r6, 0; st.release.cta.global.u32 [%rd0+{at}], %r6;\n"
    both = "".join(free.format(at=at) for at in (0, 4))
    one, other = (
        "".join(lock.format(label=f"{name}{at}", at=at) for at in order) + both
        for name, order in (("A", (0, 4)), ("B", (4, 0)))
    )
    part = "setp.ne.u32 %p0, %r2, 0; @%p0 bra END; setp.eq.u32 %p1, %r1, 1; @%p1 bra ON;\n"
    body = f"{part}{one} bra END;\nON: {other} END:"
    assert run(body, None)[:2].tolist() == [0, 0]
    hangs = 0
    for seed in range(30):
        try:
            run(body, f"schedule:{seed}")
        except DeadlockError:
            hangs += 1
    assert 0 < hangs < 30


def test_one_who_spins_for_ever_does_not_keep_others_from_going_on():
    # Warp 0 counts its tries until warp 1 sets a flag, so it never comes back to where it was.
    body = """
    setp.ne.u32 %p0, %r2, 0; @%p0 bra END; mov.u32 %r5, 0; setp.eq.u32 %p1, %r1, 1; @%p1 bra SET;
    AGAIN: add.u32 %r5, %r5, 1; ld.acquire.cta.global.u32 %r6, [%rd0]; setp.eq.u32 %p2, %r6, 0; @%p2 bra AGAIN;
    st.global.u32 [%rd0+4], %r6; bra END;
    SET: mov.u32 %r7, 9; st.release.cta.global.u32 [%rd0], %r7; END:
    """
    for seed in range(10):
        assert run(body, f"schedule:{seed}")[:2].tolist() == [9, 9]


SPINNING = """
mov.u32 %r20, bar; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r20], 2; bar.sync 0;
setp.ne.u32 %p2, %r2, 0; @%p2 bra END; setp.ne.u32 %p3, %r1, 0; @%p3 bra OTHER;
WAIT: mbarrier.test_wait.parity.shared.b64 %p4, [%r20], 0; @!%p4 bra WAIT; bra END;
OTHER: mbarrier.arrive.shared.b64 _, [%r20]; mbarrier.arrive.shared.b64 _, [%r20];
END:
"""


def test_one_who_slept_goes_on_from_where_it_stops():
    """A thread that wakes behind its wait arrives there once: it does not sleep again."""

    class UntilItSleeps(Interleaving):
        waits = sleeps = False

        def next(self, agents):
            mine = [n for n, agent in enumerate(agents) if 0 in agent.threads.ids]
            others = [n for n in range(len(agents)) if n not in mine]
            self.waits |= any("test_wait" in agents[n].instruction.parts for n in mine if agents[n].instruction)
            self.sleeps |= self.waits and not mine
            return (mine if mine and not (self.sleeps and others) else others)[0]

    policy = UntilItSleeps()
    run(SPINNING, policy, shared=".shared .align 8 .b8 bar[8];")
    assert policy.sleeps


def test_ctas_overtake_each_other():
    body = "mov.u32 %r5, %ctaid.x; add.u32 %r5, %r5, 1; st.relaxed.gpu.global.u32 [%rd0], %r5;"
    last = {int(run(body, f"schedule:{seed}", grid=3)[0]) for seed in range(40)}
    assert last == {1, 2, 3}


def test_an_interleaving_picks_among_agents_with_their_instructions():
    class Watching(Interleaving):
        def __init__(self):
            self.seen = []

        def next(self, agents):
            self.seen.append({a.instruction.parts[0] for a in agents if a.instruction is not None})
            return len(agents) - 1

    class Waits(Observer):
        waits = 0

        def on_wait(self, event):
            self.waits += 1

    policy, waits = Watching(), Waits()
    run(BARRIER.format(between="bar.sync 0;"), policy, shared=TILE, observers=[waits])
    assert any("bar" in kinds for kinds in policy.seen)
    assert waits.waits == 1


def test_an_interleaving_lets_the_first_agent_go_on_unless_it_says_otherwise():
    body = """setp.ne.u32 %p0, %r2, 0; @%p0 bra END; atom.relaxed.gpu.global.add.u32 %r5, [%rd0], 1;
    mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd0, %rd1; st.global.u32 [%rd1+4], %r5; END:"""
    assert run(body, Interleaving(), block=96)[:4].tolist() == [3, 0, 1, 2]


def test_each_agent_keeps_a_number_and_its_instruction():
    """Lanes stand at an instruction or a branch; a copy is an agent of its own, after all lanes."""

    class Watching(Interleaving):
        copies = 0

        def next(self, agents):
            numbers = [agent.number for agent in agents]
            assert len(set(numbers)) == len(numbers)
            copies = [agent.operation is not None for agent in agents]
            assert copies == sorted(copies)
            for agent in agents:
                if agent.operation is not None:
                    assert self.seen.setdefault(agent.number, agent.operation) is agent.operation
                elif agent.instruction is not None:
                    self.instructions.add(agent.instruction.opcode)
                assert agent.awaits == ()
            self.copies = max(self.copies, sum(copies))
            return 0

        def begin(self):
            self.seen, self.instructions = {}, set()

    policy = Watching()
    x = np.arange(32 + 64, dtype=np.uint32)
    copy = "@!%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r5], [%rd0], 128, [%r6];"
    two = TRIES_ONCE.format(wait=UNTIL).replace(
        copy,
        copy.replace("128", "64")
        + copy.replace("[%r5]", "[%r5+64]").replace("[%rd0]", "[%rd0+64]").replace("128", "64"),
    )
    with simulate(policy=policy):
        module(two, TILE).launch("k", 1, 64, (x,))
    assert x[32:].tolist() == [*range(32), *range(32)]
    assert policy.copies == len(policy.seen) == 2
    assert any(opcode.startswith("mbarrier.try_wait") for opcode in policy.instructions)
    assert any(opcode.startswith("bar.sync") for opcode in policy.instructions)
    assert "ld.param.u64" in policy.instructions  # the first one of its block
    assert "ret" not in policy.instructions


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize(
    ("shape", "options"), [((256, 256, 192), {}), ((300, 264, 128), {"sms": 2}), ((256, 256, 128), {"cluster_m": 2})]
)
def test_our_gemm_is_right_in_each_schedule(shape, options):
    torch = pytest.importorskip("torch")
    pytest.importorskip("cutlass")
    from tests.sim.kernels.test_gemm import compiled, multiply

    sms = {"sms": options["sms"]} if "sms" in options else {}
    made = {name: value for name, value in options.items() if name != "sms"}
    for seed in range(3):
        with simulate(policy=f"schedule:{seed}"):
            function, signature = compiled(**made)
            got, expected = multiply(function, signature, *shape, **sms)
        assert torch.equal(got, expected)
