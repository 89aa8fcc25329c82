"""Cost of atomics, flags and locks: clocks are joined, and accesses compared, as often as somebody asks."""

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.sanitize.memory.global_shadow import GlobalShadow
from cutepy.sim.sanitize.memory.shadow import Shadow
from cutepy.sim.sanitize.order.clocks import Clocks
from cutepy.sim.sanitize.order.messages import Messages
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd2, %rd3;
mov.u32 %r20, 0; mov.u32 %r21, smem; setp.eq.u32 %p1, %r1, 0; mov.u32 %r8, 0;
"""
"""rd1: flags; rd3: a word of each thread; p1: thread 0; r4: the thread's number in the grid; r20: the round."""
NEXT = "add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, {rounds}; @%p3 bra LOOP;\n"
OLD_VALUES = "LOOP: atom.acq_rel.gpu.global.add.u32 %r8, [%rd1], 1; st.global.u32 [%rd3], %r8;\n"
COUNTERS = "fence.acq_rel.gpu; @%p1 atom.relaxed.gpu.global.add.u32 %r8, [%rd1], 1; fence.acq_rel.gpu;\n"
LOCK = """@!%p1 bra END;
LOOP: TRY: atom.acquire.gpu.global.cas.b32 %r8, [%rd1], 0, 1; setp.ne.u32 %p2, %r8, 0; @%p2 bra TRY;
ld.global.u32 %r9, [%rd1+64]; add.u32 %r9, %r9, 1; st.global.u32 [%rd1+64], %r9; st.release.gpu.global.u32 [%rd1], 0;
{next}END:
"""
HISTOGRAM = """shl.b32 %r5, %r1, 2; add.u32 %r6, %r21, %r5; st.shared.u32 [%r6], 0; bar.sync 0; mov.u32 %r7, %r4;
LOOP: mad.lo.u32 %r7, %r7, 1664525, 1013904223; shr.u32 %r9, %r7, 26; shl.b32 %r9, %r9, 2; add.u32 %r9, %r9, %r21;
red.shared.add.u32 [%r9], 1;
{next}{between} ld.shared.u32 %r8, [%r6]; st.global.u32 [%rd3], %r8;
"""


@pytest.fixture
def calls(monkeypatch):
    """Return a function that counts the calls of a method, and keeps what they return."""

    def counted(owner, name):
        found, original = [], getattr(owner, name)

        def counting(*given, **named):
            found.append(original(*given, **named))
            return found[-1]

        monkeypatch.setattr(owner, name, counting)
        return found

    return counted


def sanitized(body, **options):
    """Run a kernel under the sanitizer."""
    run = Run((), None, sanitize=True)
    launch(START + body, np.zeros(64, np.uint32), np.zeros(1024, np.uint32), run=run, smem_bytes=1024, **options)
    return run


def test_lanes_that_use_old_values_share_rows_until_somebody_asks(calls):
    rows = calls(Clocks, "_own_row")
    assert sanitized(OLD_VALUES + NEXT.format(rounds=3), block=64).hazards == ()
    assert rows == []
    assert (
        sanitized(
            OLD_VALUES + "atom.acq_rel.gpu.global.add.u32 %r8, [%rd1+4], 1; st.global.u32 [%rd3], %r8;\n", block=64
        ).hazards
        == ()
    )
    assert len(rows) <= 64  # the second place hears of what was acquired at the first


@pytest.mark.parametrize("rounds", [1, 40])
def test_each_counter_is_one_message_to_other_ctas(calls, rounds):
    messages = calls(Messages, "_hear")
    assert sanitized(f"LOOP: bar.sync 0; {COUNTERS} bar.sync 0;\n" + NEXT.format(rounds=rounds), grid=8).hazards == ()
    assert len(messages) <= 16 * rounds


def test_a_lock_is_one_chain_and_is_compared_with_what_it_guards_only(calls):
    chains, compared = calls(Messages, "_chain"), calls(GlobalShadow, "_compare")
    assert sanitized(LOCK.format(next=NEXT.format(rounds=4)), grid=4).hazards == ()
    assert {*chains} == {0}
    assert len(compared) < 8 * 16, len(compared)


PING_PONG = """@!%p1 bra END; setp.eq.u32 %p4, %r2, 0; xor.b32 %r5, %r2, 1; mul.wide.u32 %rd4, %r2, 4;
mul.wide.u32 %rd5, %r5, 4; add.u64 %rd4, %rd1, %rd4; add.u64 %rd5, %rd1, %rd5; @%p4 st.global.u32 [%rd1+64], %r1;
LOOP: add.u32 %r6, %r20, %r5; WAIT: ld.acquire.gpu.global.u32 %r8, [%rd5]; setp.lt.u32 %p2, %r8, %r6; @%p2 bra WAIT;
add.u32 %r7, %r20, 1; st.release.gpu.global.u32 [%rd4], %r7;
{next}@!%p4 ld.global.u32 %r9, [%rd1+64];
END:
"""


def test_long_chains_of_flags_are_joined_in_time():
    """A flag tells of what its thread has acquired, which nobody has asked for: that is not put off for ever."""
    assert sanitized(PING_PONG.format(next=NEXT.format(rounds=200)), grid=2).hazards == ()


@pytest.mark.parametrize("lanes", [32, 64])
def test_atomics_of_one_time_are_one_record(calls, lanes):
    records, joined = calls(Shadow, "_present"), calls(Shadow, "_set")
    body = HISTOGRAM.format(next=NEXT.format(rounds=80), between="bar.sync 0;").replace(
        "26", str(32 - lanes.bit_length() + 1)
    )
    assert sanitized(body, block=lanes).hazards == ()
    assert len({*joined}) <= 1  # with what wrote it first
    assert max(len(numbers) for numbers, _ in records) <= 3


APART = """setp.ge.u32 %p4, %r1, 64; shl.b32 %r5, %r1, 2; add.u32 %r6, %r21, %r5; st.shared.u32 [%r6], 0;
setp.ge.u32 %p5, %r1, 32; @%p5 st.shared.u32 [%r6+256], 0; bar.sync 0; @%p4 bra OTHER;
LOOP: red.shared.add.u32 [%r6], 1; add.u32 %r6, %r6, 256; {next} @%p1 st.relaxed.gpu.global.u32 [%rd1], 1; bra END;
OTHER: ld.relaxed.gpu.global.u32 %r8, [%rd1]; setp.eq.u32 %p2, %r8, 0; @%p2 bra OTHER;
ld.shared.u32 %r8, [%r6]; st.global.u32 [%rd3], %r8;
END:
"""
AGAIN = """shl.b32 %r5, %r1, 2; add.u32 %r6, %r21, %r5; st.shared.u32 [%r6], 0;
LOOP: bar.sync 0; red.shared.add.u32 [%r6], 1; {next} xor.b32 %r6, %r6, 128; ld.shared.u32 %r8, [%r6];
st.global.u32 [%rd3], %r8;
"""


@pytest.mark.parametrize(("body", "kind"), [(APART, "too-weak-semantics"), (AGAIN, "unordered-read")])
def test_atomics_of_one_record_are_told_apart(body, kind):
    """Of the second round nothing is known, neither where it was nor that it is over."""
    (found,) = sanitized(body.format(next=NEXT.format(rounds=2)), block=96 if body is APART else 64).hazards
    assert (found.kind, found.before.instruction.parts[0]) == (kind, "red")
