"""Threads that wait for ever are one hazard: the wait that all others come of, with who waits for whom."""

import json

import numpy as np
import pytest

import cutepy
from cutepy.sim import AbsentCtaError, DeadlockError, HazardError, Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.sanitize import Hazards
from tests.messages import pins, refuses
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; add.u32 %r8, %r1, 1024;
setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 32; ld.param.u64 %rd1, [p0];
"""
INIT = "@%p1 mbarrier.init.shared.b64 [%r8{at}], {count};\n"
SHOW = "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r8{at}];\n"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {};\n"
TRY = "L{n}: mbarrier.try_wait.parity.shared.b64 %p3, [%r8{at}], {parity};\n@!%p3 bra L{n};\n"
EVERY = "every schedule hangs: what has run"


def wait(n, at="", parity=0):
    return TRY.format(n=n, at=at, parity=parity)


def hung(body, data=None, **options):
    """Return what stops a launch, and the hazards."""
    run = Run((), None, sanitize=True)
    with pytest.raises(DeadlockError) as found:
        launch(
            START + body, np.zeros(256, np.uint32) if data is None else data, smem_bytes=2048, run=run,
            assembles=False, **options,
        )  # fmt: skip
    return found.value, run.hazards


def waits_of(hazard):
    """List what is waited for, and what those wait for who would bring it."""
    return [(wait.at, [at for _, at in wait.bringers]) for wait in hazard.waits]


def run_text(hazard):
    return str(Hazards([hazard]))


def test_an_arrival_at_an_address_that_is_not_known_may_be_the_missing_one():
    body = (
        INIT.format(at="", count=1) + INIT.format(at="+8", count=1) + SHOW + "@!%p2 bra OTHER;\n" + wait(0)
        + "bra END;\nOTHER:\n" + wait(1, "+8") + "ld.shared.u32 %r9, [%r1];\nmbarrier.arrive.shared.b64 _, [%r9];\n"
        + "END:\n"
    )  # fmt: skip
    _, (hang,) = hung(body, block=64)
    assert waits_of(hang) == [("mbarrier 0x408", []), ("mbarrier 0x400", ["mbarrier 0x408"])]
    assert not any(sure for wait in hang.waits for sure in wait.are_sure)


FORGOTTEN = """.version 8.7
.target sm_90a
.address_size 64
.file 1 "{file}"
.visible .entry kernel(.param .u64 p0)
{{
.reg .pred %p<4>; .reg .b32 %r<4>; .shared .align 8 .b64 barriers[2];
mov.u32 %r1, barriers; mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 32;
.loc 1 1 0
@%p1 mbarrier.init.shared.b64 [%r1], 1;
.loc 1 2 0
@%p1 mbarrier.init.shared.b64 [%r1+8], 1;
bar.sync 0;
.loc 1 3 0
@%p2 mbarrier.arrive.shared.b64 _, [%r1];
.loc 1 4 0
{more}
@!%p1 bra END;
FIRST: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0; @!%p3 bra FIRST;
SECOND: mbarrier.try_wait.parity.shared.b64 %p3, [%r1+8], 0; @!%p3 bra SECOND;
END: ret;
}}
"""


@pytest.mark.parametrize(
    ("more", "nobody"),
    [
        ("", "no line of the program arrives at second.empty"),
        ("@%p2 mbarrier.arrive.shared.b64 _, [%r1+8];", ""),
        ("bra ON; ld.shared.u32 %r3, [%r1]; mbarrier.arrive.shared.b64 _, [%r3]; ON:", "no other thread"),
    ],
)
def test_a_ring_that_no_line_arrives_at(more, nobody, tmp_path):
    """An arrival that has not been executed may be at any address."""
    file = tmp_path / "kernel.py"
    file.write_text("first.put(mbarrier_init(empty, 1))\nsecond.put(mbarrier_init(empty, 1))\nfree()\nmore()\n")
    run = Run((), None, sanitize=True)
    module = LoadedModule(FORGOTTEN.format(file=file, more=more))
    call = KernelCall(module, "kernel", (1, 1, 1), (64, 1, 1), parameters=(bytes(8),))
    if not nobody:
        run.launch(call)
        return
    with pytest.raises(DeadlockError):
        run.launch(call)
    (hang,) = run.hazards
    assert nobody in hang.advice[0]
    assert ("release behind the last use" in hang.advice[1]) == nobody.startswith("no line")


def test_an_arrival_that_nobody_makes():
    """Of a ring, the release is gone: who fills it waits for that, and who reads it for what comes next."""
    body = (
        INIT.format(at="", count=1) + INIT.format(at="+8", count=32) + SHOW + "@!%p2 bra READ;\n"
        + wait(0, "+8", 1) + "@%p1 " + ARRIVE.format(at="")
        + wait(1, "+8", 0) + "@%p1 " + ARRIVE.format(at="") + "bra END;\n"
        + "READ:\n" + wait(2) + wait(3, parity=1) + "END:\n"
    )  # fmt: skip
    error, hazards = hung(body, block=64)
    (empty,) = hazards
    assert (empty.kind, empty.where) == ("deadlock", "mbarrier 0x408")
    assert waits_of(empty) == [("mbarrier 0x408", []), ("mbarrier 0x400", ["mbarrier 0x408"])]
    full = empty.waits[1]
    pins(empty.missing)
    assert [side.who for side in empty.waits[0].sides] == ["threads 0-31 of CTA (0, 0, 0)"]
    assert (empty.before.what, empty.after.what, empty.after.warp) == ("mbarrier.init", "mbarrier.try_wait", 0)
    pins(full.lacks)
    assert [(side.what, side.warp, at) for side, at in full.bringers] == [("mbarrier.arrive", 0, "mbarrier 0x408")]
    assert [(side.what, side.warp) for side in full.sides] == [("mbarrier.try_wait", 1)]
    assert EVERY in empty.missing
    assert {hazard.kind for hazard in error.mistakes} == {"deadlock"}


def test_a_commit_of_the_tensor_core_is_an_arrival():
    body = (
        INIT.format(at="", count=1) + INIT.format(at="+8", count=1) + SHOW + "@!%p2 bra OTHER;\n" + wait(0)
        + "@%p1 " + ARRIVE.format(at="+8") + "bra END;\nOTHER:\n" + wait(1, "+8") + "setp.eq.u32 %p4, %r2, 32;\n"
        + "@%p4 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%r8];\nEND:\n"
    )  # fmt: skip
    _, (hang,) = hung(body, block=64, target="sm_100a")
    assert waits_of(hang) == [("mbarrier 0x400", ["mbarrier 0x408"]), ("mbarrier 0x408", ["mbarrier 0x400"])]


def test_what_a_part_has_come_of_comes_before_what_waits_for_it():
    """A count too high by one: the waiters of the phase after it wait in vain as well."""
    body = (
        INIT.format(at="", count=2) + INIT.format(at="+8", count=32) + SHOW + "@!%p2 bra READ;\n"
        + "@%p1 " + ARRIVE.format(at="") + wait(0, "+8") + "@%p1 " + ARRIVE.format(at="") + "bra END;\n"
        + "READ:\n" + wait(1) + ARRIVE.format(at="+8") + "END:\n"
    )  # fmt: skip
    _, hazards = hung(body, block=64)
    (found,) = hazards
    assert waits_of(found) == [("mbarrier 0x400", ["mbarrier 0x408"]), ("mbarrier 0x408", ["mbarrier 0x400"])]
    pins(found.missing)


def test_one_for_each_thing_however_many_wait():
    """Two warps at two lines, in two CTAs."""
    apart = "@%p2 bra OTHER;\n" + wait(0) + "bra END;\nOTHER:\n" + wait(1) + "END:\n"
    body = INIT.format(at="", count=1) + SHOW + apart
    _, (found,) = hung(body, block=64, grid=2)
    assert found.kind == "deadlock"
    pins(found.missing)


def test_two_things_at_one_line_are_two_waits():
    body = (
        INIT.format(at="", count=1) + INIT.format(at="+8", count=1) + SHOW
        + "selp.u32 %r9, 8, 0, %p2;\nadd.u32 %r8, %r8, %r9;\n" + wait(0)
    )  # fmt: skip
    _, (found,) = hung(body, block=64)
    assert sorted(wait.at for wait in found.waits) == ["mbarrier 0x400", "mbarrier 0x408"]


def test_bytes_that_do_not_come_follow_from_what_was_announced():
    _, hazards = hung(INIT.format(at="", count=1) + SHOW + EXPECT.format(256) + wait(0))
    assert [hazard.kind for hazard in hazards] == ["uneven-bytes", "deadlock"]
    pins(hazards[1].missing)
    assert hazards[1].before.what == "mbarrier.arrive.expect_tx"


def test_a_named_barrier():
    _, (found,) = hung("@!%p2 bra END;\nbar.sync 1, 64;\nEND:\n", block=64)
    assert (found.kind, found.where, found.before) == ("deadlock", "barrier 1", None)
    pins(found.missing)
    assert found.after.what == "bar.sync"


def test_barriers_that_are_waited_for_in_turns():
    one, other = "bar.sync 1, 64;\n", "bar.sync 2, 64;\n"
    body = f"@!%p2 bra OTHER;\n{one}{other}bra END;\nOTHER: {other}{one}END:\n"
    _, (found,) = hung(body, block=64)
    assert waits_of(found) == [("barrier 1", ["barrier 2"]), ("barrier 2", ["barrier 1"])]
    assert (found.after.warp, found.before.warp) == (0, 1)
    pins(found.missing)
    text = run_text(found)
    pins(text)


def test_the_barrier_of_a_cluster():
    body = "mov.u32 %r9, %cluster_ctarank;\nsetp.eq.u32 %p3, %r9, 0;\n@%p3 barrier.cluster.arrive;\n"
    late = body + "@!%p3 bra OTHER;\nbarrier.cluster.wait;\nbra END;\nOTHER: bar.sync 1, 64;\nEND:\n"
    _, (found,) = hung(late, grid=2, cluster=2)
    assert waits_of(found) == [("the barrier of the cluster", []), ("barrier 1", [])]
    pins(found.missing)


def test_a_flag_in_global_memory():
    spin = "SPIN: ld.acquire.gpu.global.u32 %r9, [%rd1+64];\nsetp.eq.u32 %p3, %r9, 0;\n@%p3 bra SPIN;\n"
    _, (found,) = hung(spin)
    assert found.kind == "deadlock"
    pins(found.where)
    assert found.after.what == "ld read"
    pins(found.missing)


def test_a_lock_that_is_not_given_back_has_who_took_it():
    lock = "SPIN: atom.cas.acquire.gpu.global.b32 %r9, [%rd1], 0, 1;\nsetp.ne.u32 %p3, %r9, 0;\n@%p3 bra SPIN;\n"
    body = f"and.b32 %r3, %r2, 31;\nsetp.ne.u32 %p4, %r3, 0;\n@%p4 bra END;\n{lock}END:\n"
    _, (found,) = hung(body, block=64)
    assert found.kind == "deadlock"
    assert found.after.what == "atom atomic"
    assert {found.before.warp, found.after.warp} == {0, 1}


def test_a_word_in_shared_memory_and_a_loop_without_memory():
    word = "@%p1 st.shared.u32 [%r1+16], 0;\nbar.sync 0;\n"
    spin = "SPIN: ld.volatile.shared.u32 %r9, [%r1+16];\nsetp.eq.u32 %p3, %r9, 0;\n@%p3 bra SPIN;\n"
    _, (found,) = hung(word + spin)
    assert (found.where, found.address) == ("shared memory at 0x10", 16)
    _, (found,) = hung("SPIN: setp.ne.u32 %p3, %r2, 99;\n@%p3 bra SPIN;\n")
    pins(found.where)


GENERIC = "cvt.u64.u32 %rd2, %r1;\ncvta.shared.u64 %rd2, %rd2;\n"
READS = [("ld.acquire.cta.shared.u32 %r9, [%r1+16];\n", "ld read"), ("ld.acquire.cta.u32 %r9, [%rd2+16];\n", "ld read")]


@pytest.mark.parametrize(("read", "what"), READS)
def test_a_word_in_shared_memory_has_who_wrote_it_last(read, what):
    """The second warp waits for 2, the first one has written 1, after the third one has cleared it."""
    body = (
        "setp.eq.u32 %p4, %r2, 64;\n@%p4 st.shared.u32 [%r1+16], 0;\nbar.sync 0;\n" + GENERIC
        + "@%p1 st.release.cta.shared.u32 [%r1+16], 1;\nsetp.ne.u32 %p4, %r2, 32;\n@%p4 bra END;\n"
        + f"SPIN: {read}setp.ne.u32 %p3, %r9, 2;\n@%p3 bra SPIN;\nEND:\n"
    )  # fmt: skip
    _, (found,) = hung(body, block=96)
    assert (found.kind, found.where, found.address) == ("deadlock", "shared memory at 0x10", 16)
    assert (found.before.what, found.before.warp, found.before.lane) == ("st write", 0, 0)
    assert (found.after.what, found.after.warp) == (what, 1)


def test_tries_at_a_lock_in_shared_memory_hide_who_took_it():
    """The report names no other write before that."""
    lock = "SPIN: atom.cas.acquire.cta.shared.b32 %r9, [%r1+16], 0, 1;\nsetp.ne.u32 %p3, %r9, 0;\n@%p3 bra SPIN;\n"
    only = "and.b32 %r3, %r2, 31;\nsetp.ne.u32 %p4, %r3, 0;\n@%p4 bra END;\n"
    _, (found,) = hung(f"@%p1 st.shared.u32 [%r1+16], 0;\nbar.sync 0;\n{only}{lock}END:\n", block=64)
    assert (found.where, found.after.what, found.before) == ("shared memory at 0x10", "atom atomic", None)


def test_a_word_in_shared_memory_that_a_copy_wrote_last():
    copy = "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r8];\n"
    spin = "SPIN: ld.volatile.shared.u32 %r9, [%r1+16];\nsetp.eq.u32 %p3, %r9, 0;\n@%p3 bra SPIN;\n"
    _, (found,) = hung(INIT.format(at="", count=1) + SHOW + EXPECT.format(256) + copy + wait(0) + spin)
    assert (found.kind, found.where) == ("deadlock", "shared memory at 0x10")
    assert (found.before.what, found.before.warp) == ("bulk copy write", 0)


def test_a_word_in_shared_memory_of_another_cta_has_no_writer_of_the_own_one():
    peer = "mov.u32 %r9, %cluster_ctarank;\nxor.b32 %r9, %r9, 1;\nmapa.shared::cluster.u32 %r9, %r1, %r9;\n"
    word = "@%p1 st.shared.u32 [%r1+16], 0;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n"
    spin = "SPIN: ld.acquire.cluster.shared::cluster.u32 %r10, [%r9+16];\nsetp.eq.u32 %p3, %r10, 0;\n@%p3 bra SPIN;\n"
    _, hazards = hung(peer + word + spin, grid=2, cluster=2)
    pins(hazards[-1].where)
    assert hazards[-1].before is None


def test_of_lanes_that_each_look_at_a_word_of_their_own_the_first_word_is_named():
    word = "st.shared.u32 [%r4+16], 0;\nbar.sync 0;\n"
    spin = "SPIN: ld.volatile.shared.u32 %r10, [%r4+16];\nsetp.eq.u32 %p3, %r10, 0;\n@%p3 bra SPIN;\n"
    _, (found,) = hung(word + spin)
    assert (found.where, found.address) == ("shared memory at 0x10", 16)


def test_an_mbarrier_that_is_tested_in_a_loop():
    test = "SPIN: mbarrier.test_wait.parity.shared.b64 %p3, [%r8], 0;\n@!%p3 bra SPIN;\n"
    _, (found,) = hung(INIT.format(at="", count=1) + SHOW + test)
    assert (found.kind, found.where, found.after.what) == ("deadlock", "mbarrier 0x400", "mbarrier.test_wait")
    assert EVERY in found.missing


def test_registers_come_first_and_who_waits_for_those_that_wait_for_them():
    grows = "setmaxnreg.inc.sync.aligned.u32 232;\n"
    body = f"setp.lt.u32 %p4, %r2, 128;\n@%p4 bra END;\n{grows}END: bar.sync 0;\n"
    _, (found,) = hung(body, block=384, directives=".reqntid 384, 1, 1")
    assert found.kind == "exhausted-registers"
    assert waits_of(found)[1] == ("barrier 0", ["registers"])


def test_causes_come_first():
    race = "@%p1 st.shared.u32 [%r1], %r2;\n@!%p2 ld.shared.u32 %r9, [%r1];\n"
    _, hazards = hung(race + "bar.sync 1, 96;\n", block=64)
    assert [hazard.kind for hazard in hazards] == ["unordered-read", "deadlock"]
    pins(hazards[-1].missing)


def test_an_absent_cta_is_no_mistake():
    spin = "SPIN: ld.acquire.gpu.global.u32 %r0, [%rd0];\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 bra SPIN;\n"
    with pytest.raises(AbsentCtaError) as error, cutepy.simulate(sanitize=True, ctas=[0]) as run:
        waits(PTX.replace("bar.sync 1, 128;", REGISTERS + spin), grid=4)
    assert not run.hazards
    assert not error.value.mistakes


REGISTERS = ".reg .pred %p<2>; .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd0, [x];\n"
PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry waits(.param .u64 x) {
    bar.sync 1, 128;
    ret;
}"""
SOME = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry some(.param .u64 x) {
    .reg .pred %p<3>; .reg .b64 %rd<2>; .reg .b32 %r<4>;
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 31;
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra END;
    atom.relaxed.gpu.global.add.u32 %r2, [%rd0], 1;
    setp.eq.u32 %p1, %r2, 0;
    setp.eq.u32 %p2, %r0, 0;
    @!%p2 bra END;
    @%p1 bra END;
WAIT: bar.warp.sync 1;
    barrier.sync 1, 64;
END: ret;
}"""
"""The first warp waits for ever if it does not come first."""


def waits(text=PTX, name="waits", block=64, grid=1):
    cutepy.load_ptx(text).launch(name, grid=grid, block=block, args=(np.zeros(4, np.uint32),))


def test_simulate_raises_hazards_in_its_place():
    with pytest.raises(HazardError) as found, cutepy.simulate(sanitize=True):
        waits()
    assert isinstance(found.value.__cause__, DeadlockError)
    assert [hazard.kind for hazard in found.value.hazards] == ["deadlock"]
    with pytest.raises(DeadlockError), cutepy.simulate():
        waits()


def test_one_that_is_allowed_is_the_deadlock_that_it_is():
    with pytest.raises(DeadlockError), cutepy.simulate(sanitize=True, allow={"deadlock": "to see it"}) as run:
        waits()
    (allowed,) = run.hazards.allowed
    assert (allowed.kind, allowed.allowed) == ("deadlock", "to see it")


def test_the_command_tells_it_and_fails_by_it(tmp_path, capsys):
    from cutepy.cli.sanitize import run
    from cutepy.cli.scripts import Script

    script = tmp_path / "waits.py"
    script.write_text(
        f"import numpy as np\nimport cutepy\nkernel = cutepy.load_ptx({PTX!r})\n"
        'kernel.launch("waits", grid=1, block=64, args=(np.zeros(4, np.uint32),))\n'
    )
    for form in ("json", "sarif"):
        assert run(Script(script, (), lambda line: None), form, tmp_path / f"found.{form}") == 1
    (told,) = json.loads((tmp_path / "found.json").read_text())["hazards"]
    assert (told["kind"], told["where"], told["after"]["ptx_line"]) == ("deadlock", "barrier 1", 5)
    (log,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert [result["ruleId"] for result in log["results"]] == ["deadlock"]
    pins(capsys.readouterr().err)


@pytest.mark.parametrize("schedules", [20, "all"])
def test_a_schedule_that_hangs_is_one_too(schedules):
    with cutepy.simulate(sanitize=True, replay=True) as run:
        waits(SOME, "some")
        assert not run.hazards
        found = run.explore(schedules)
    hangs = [one for one in found.divergences if one.kind == "hazard"]
    assert len(hangs) == 1
    assert hangs[0].hazard.kind == "deadlock"
    pins(hangs[0].what)
    with refuses(HazardError), cutepy.simulate(
        sanitize=True, policy=hangs[0].policy
    ):  # fmt: skip
        waits(SOME, "some")


def test_the_reports_have_the_hazards_of_schedules():
    with pytest.raises(cutepy.sim.ScheduleError), cutepy.simulate(sanitize=True, schedules=20) as run:
        waits(SOME, "some")
    report = run.report()
    assert not report.is_clean
    (result,) = report.to_sarif()["runs"][0]["results"]
    assert result["ruleId"] == "deadlock"
    (explored,) = report.to_json()["schedules"]
    (told,) = (one["hazard"] for one in explored["differ"] if one["kind"] == "hazard")
    assert told["kind"] == "deadlock"
    assert told["witness"]["policy"].startswith("schedule:")


def test_lanes_of_one_group_wait_each_for_their_own_barrier():
    """Thread 32 n waits for barrier n, and arrives at the next one of three."""
    body = (
        "".join(INIT.format(at=f"+{8 * n}", count=1) for n in range(3)) + SHOW
        + "and.b32 %r5, %r2, 31;\nsetp.ne.u32 %p4, %r5, 0;\n@%p4 bra END;\nshr.u32 %r6, %r2, 5;\nmov.u32 %r7, %r8;\n"
        + "shl.b32 %r9, %r6, 3;\nadd.u32 %r8, %r8, %r9;\n" + wait(0)
        + "add.u32 %r9, %r6, 1;\nrem.u32 %r9, %r9, 3;\nshl.b32 %r9, %r9, 3;\nadd.u32 %r8, %r7, %r9;\n"
        + ARRIVE.format(at="") + "END:\n"
    )  # fmt: skip
    error, (found,) = hung(body, block=96)
    for n, at in ((0, "0x400"), (32, "0x408"), (64, "0x410")):
        assert f"thread {n} of CTA (0, 0, 0): wait for the phase of parity 0 of mbarrier {at}" in str(error)
    assert waits_of(found) == [
        ("mbarrier 0x400", ["mbarrier 0x410"]),
        ("mbarrier 0x410", ["mbarrier 0x408"]),
        ("mbarrier 0x408", ["mbarrier 0x400"]),
    ]
    assert [[side.who for side in wait.sides] for wait in found.waits] == [
        [f"thread {n} of CTA (0, 0, 0)"] for n in (0, 64, 32)
    ]
    assert all(wait.are_sure == (True,) for wait in found.waits)
    assert "no other thread" not in found.missing


@pytest.mark.parametrize(("guard", "is_peer"), [("xor.b32 %r9, %r9, 1;\n", True), ("", False)])
def test_a_peer_of_the_cluster_may_be_who_arrives(guard, is_peer):
    body = (
        INIT.format(at="", count=1) + "fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive;\n"
        + "barrier.cluster.wait;\n@!%p1 bra END;\n" + wait(0) + "mov.u32 %r9, %cluster_ctarank;\n" + guard
        + "mapa.shared::cluster.u32 %r10, %r8, %r9;\n"
        + "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];\nEND:\nbarrier.cluster.arrive;\n"
        + "barrier.cluster.wait;\n"
    )  # fmt: skip
    _, (found,) = hung(body, grid=2, cluster=2)
    pins(found.missing)
    assert dict(waits_of(found))["mbarrier 0x400"] == ["mbarrier 0x400"] * is_peer


def test_a_branch_that_is_not_taken_leads_to_no_arrival():
    """Two mistakes that have nothing to do with each other: none is the consequence of the other."""
    body = (
        INIT.format(at="", count=2) + INIT.format(at="+8", count=3) + SHOW + "@!%p1 bra OTHER;\n"
        + ARRIVE.format(at="") + wait(0) + "OTHER: setp.ne.u32 %p4, %r2, 32;\n@%p4 bra END;\n"
        + ARRIVE.format(at="+8") + wait(1, "+8") + "END:\n"
    )  # fmt: skip
    _, (found,) = hung(body, block=64)
    assert sorted(waits_of(found)) == [("mbarrier 0x400", []), ("mbarrier 0x408", [])]
    assert not found.near_misses


def test_an_arrival_behind_an_unknown_branch_may_come():
    """The branch depends on what memory holds."""
    unknown = "ld.global.u32 %r9, [%rd1];\nsetp.eq.u32 %p4, %r9, 0;\n@%p4 bra END;\n"
    body = (
        INIT.format(at="", count=1) + INIT.format(at="+8", count=1) + SHOW + "@!%p2 bra OTHER;\n"
        + wait(0, "+8") + "{unknown}" + "@%p1 " + ARRIVE.format(at="") + "bra END;\nOTHER:\n"
        + wait(1) + "@%p1 " + ARRIVE.format(at="+8") + "END:\n"
    )  # fmt: skip
    for text, is_sure in ((unknown, False), ("", True)):
        _, (found,) = hung(body.replace("{unknown}", text), block=64)
        waits = {wait.at: wait for wait in found.waits}
        assert waits["mbarrier 0x400"].are_sure == (is_sure,)
        assert waits["mbarrier 0x408"].bringers == ()  # thread 0 is not behind the second wait
        said = "thread 0 of CTA (0, 0, 0) {} come at "
        assert said.format("would" if is_sure else "may") in run_text(found)


def test_an_arrival_at_another_stage_is_none_at_this_one():
    """The consumer releases the second of two stages each time."""
    body = (
        INIT.format(at="", count=1) + INIT.format(at="+8", count=1) + SHOW + "@!%p2 bra OTHER;\n"
        + wait(0, "+8") + "bra END;\nOTHER:\n" + wait(1)
        + "@%p1 " + ARRIVE.format(at="") + "END:\n"
    )  # fmt: skip
    _, (found,) = hung(body, block=64)
    assert sorted(waits_of(found)) == [("mbarrier 0x400", []), ("mbarrier 0x408", [])]
    pins(found.missing)


def test_the_error_and_the_hazard_count_arrivals_alike():
    error, (found,) = hung(INIT.format(at="", count=2) + SHOW + "@%p1 " + ARRIVE.format(at="") + wait(0))
    pins(str(error))
    pins(found.missing)
