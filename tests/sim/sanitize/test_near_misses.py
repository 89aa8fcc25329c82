"""Near misses: what looks like what a report lacks is named, with its line and why it does not count."""

import json

import numpy as np
import pytest

from cutepy.sim import HazardError, Run, SimulationError
from cutepy.sim.sanitize import Hazards
from cutepy.sim.sanitize.hazards import NEAR_MISSES
from tests.messages import pins
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; add.u32 %r8, %r1, 1024;
setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 32; setp.eq.u32 %p4, %r2, 32; ld.param.u64 %rd1, [p0];
mov.u32 %r20, %cluster_ctarank; setp.eq.u32 %p5, %r20, 0;
"""
SHOW = "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
MEET = "fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n"
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r8];\n"
STORE = "fence.proxy.async.shared::cta;\n@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256;\n"
COMMIT, WAIT_READ = "cp.async.bulk.commit_group;\n", "cp.async.bulk.wait_group.read 0;\n"


def init(at="", count=1):
    return f"@%p1 mbarrier.init.shared.b64 [%r8{at}], {count};\n"


def arrive(at="", guard="@%p1 "):
    return f"{guard}mbarrier.arrive.shared.b64 _, [%r8{at}];\n"


def wait(n, at="", parity=0):
    return f"L{n}: mbarrier.try_wait.parity.shared.b64 %p3, [%r8{at}], {parity};\n@!%p3 bra L{n};\n"


def expect(size_bytes):
    return f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {size_bytes};\n"


def hazards(body, block=64, **options):
    run = Run((), None, sanitize=True)
    data = np.zeros(512, np.uint32)
    try:
        launch(START + body, data, smem_bytes=2048, run=run, assembles=False, block=block, **options)
    except SimulationError:
        assert run.hazards
    return run.hazards


def near(found):
    return [(one.kind, None if one.side is None else (one.side.what, one.side.warp)) for one in found.near_misses]


def only(body, kind, **options):
    """Return the one hazard of a kind."""
    (found,) = (hazard for hazard in hazards(body, **options) if hazard.kind == kind)
    assert {one.kind for one in found.near_misses} <= NEAR_MISSES.keys()
    return found


def ring(parity, write="st.shared.u32 [%r1], 7;\n", read="ld.shared.u32 %r9, [%r1];\n"):
    """Let thread 0 fill a stage, and thread 32 read it; the first waits with this parity first."""
    return (
        init() + init("+8") + SHOW + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\n"
        + "FILL:\n" + wait(0, "+8", parity) + write + arrive(guard="") + "bra END;\n"
        + "READ:\n" + wait(1) + read + arrive("+8", guard="") + "END:\n"
    )  # fmt: skip


def test_the_first_wait_of_who_fills_is_for_parity_1():
    found = only(ring(0), "deadlock")
    assert found.where == "mbarrier 0x408"
    assert near(found) == [("first-parity", ("mbarrier.try_wait", 0))]
    assert "parity 1" in found.advice[1]
    assert not hazards(ring(1))


def test_who_fills_is_told_by_what_it_writes_and_not_by_its_number():
    found = only(ring(0, write="ld.shared.u32 %r9, [%r1];\n", read="st.shared.u32 [%r1], 7;\n"), "deadlock")
    assert near(found) == [("first-parity", ("mbarrier.try_wait", 1))]


def test_a_first_wait_that_nobody_could_end_is_no_matter_of_parity():
    found = only(init() + SHOW + wait(0), "deadlock")
    assert near(found) == []


def test_expect_tx_is_no_arrival():
    announced = "@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r8], 256;\n@%p1 "
    found = only(init() + SHOW + announced + COPY + wait(0), "deadlock")
    assert near(found) == [("expect-tx", ("mbarrier.expect_tx", 0))]
    assert "arrive.expect_tx" in found.advice[1]


def test_an_arrival_of_copies_that_counts_itself_is_none_of_the_count():
    copy = "@%p1 cp.async.ca.shared.global [%r1], [%rd1], 4;\n@%p1 cp.async.mbarrier.arrive.shared.b64 [%r8];\n"
    found = only(init() + SHOW + copy + wait(0), "deadlock")
    assert near(found) == [("counted-besides", ("cp.async.mbarrier.arrive", 0))]
    assert "noinc" in found.advice[1]
    assert not hazards(init() + SHOW + copy.replace("arrive.", "arrive.noinc.") + wait(0))


def test_arrivals_at_another_stage_of_a_ring():
    stages = init().strip() + init("+8")  # of one line, as of a loop
    again = "".join(arrive("+8") + wait(n, "+8", n & 1) for n in range(3))
    found = only(stages + SHOW + again + "bar.sync 0;\n" + wait(9), "deadlock")
    assert near(found) == [("other-stage", ("mbarrier.arrive", 0))]
    pins(found.near_misses[0].why)


CLUSTER = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
MULTICAST = COPY.replace(";", ", %rs1;").replace("bytes ", "bytes.multicast::cluster ")
HALVES = "add.u32 %r11, %r1, 512;\nselp.u32 %r1, %r1, %r11, %p5;\nmov.b16 %rs2, {};\n@!%p5 mov.b16 %rs1, %rs2;\n"
PAIR = expect(512) + CLUSTER + "mov.b16 %rs1, {};\n" + HALVES + "@%p1 " + MULTICAST
ROWS = """shr.u32 %r12, %r20, 1; shl.b32 %r14, %r12, 1; mov.u32 %r13, 3; shl.b32 %r13, %r13, %r14;
setp.eq.u32 %p6, %r20, 2; selp.u32 %r13, {}, %r13, %p6; cvt.u16.u32 %rs1, %r13; and.b32 %r15, %r20, 1;
setp.ne.u32 %p7, %r15, 0;
"""
MASKS = {
    "of one CTA": (expect(256) + CLUSTER + "mov.b16 %rs1, {};\n@!%p5 bra A;\n@%p1 " + MULTICAST + "A:\n", 1),
    "beside a copy for each CTA": (
        expect(512) + CLUSTER + "mov.b16 %rs1, {};\n@!%p5 bra A;\n@%p1 " + MULTICAST + "A:\n@%p1 "
        + COPY.replace("[%r1]", "[%r1+512]"), 1,
    ),
    "before the bytes are announced": (
        "mov.b16 %rs1, {};\n@!%p5 bra A;\n@%p1 " + MULTICAST + "A:\n" + expect(256), 1,
    ),
    "of the second of a pair, without the first": (PAIR.replace("{}", "3", 1), 2),
    "of the second of a pair, without itself": (PAIR.replace("{}", "3", 1), 1),
    "of the second round": (
        expect(256) + CLUSTER + "mov.b16 %rs1, 3;\n@!%p5 bra A;\n@%p1 " + MULTICAST + "A:\n" + wait(1) + CLUSTER
        + expect(256) + CLUSTER + "mov.b16 %rs1, {};\n@!%p5 bra B;\n@%p1 " + MULTICAST + "B:\n", 1,
    ),
    "of the second of two rows": (expect(256) + CLUSTER + ROWS + "@%p7 bra A;\n@%p1 " + MULTICAST + "A:\n", 4),
}  # fmt: skip


@pytest.mark.parametrize(("body", "mask"), MASKS.values(), ids=MASKS)
def test_a_mask_without_one_that_waits(body, mask):
    ctas = 4 if mask == 4 else 2
    parity = int("A:" in body and "B:" in body)
    body = init() + MEET + body + wait(0, parity=parity) + CLUSTER
    found = only(body.format(mask), "deadlock", grid=ctas, cluster=ctas, block=32)
    assert near(found) == [("multicast-mask", ("cp.async.bulk", 0))]
    pins(found.near_misses[0].why)
    pins(found.near_misses[0].why)
    assert not hazards(body.format(12 if mask == 4 else 3), grid=ctas, cluster=ctas, block=32)


def test_masks_for_each_cta_alone():
    body = init() + MEET + PAIR.format("{}", "{}") + wait(0) + CLUSTER
    found = only(body.format(1, 2), "deadlock", grid=2, cluster=2, block=32)
    assert near(found) == [("multicast-mask", ("cp.async.bulk", 0))]


def test_masks_of_rows_say_nothing_of_bytes_that_no_copy_brings():
    rows = expect(260) + CLUSTER + ROWS.format(12) + "@%p7 bra A;\n@%p1 " + MULTICAST + "A:\n"
    found = only(init() + MEET + rows + wait(0) + CLUSTER, "deadlock", grid=4, cluster=4, block=32)
    assert near(found) == []


@pytest.mark.parametrize("reached", [0, 1])
def test_arrivals_that_reach_one_cta_of_two(reached):
    at = f"mov.u32 %r12, {reached};\nmapa.shared::cluster.u32 %r13, %r8, %r12;\n"
    remote = "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];\n"
    found = only(init(count=2) + MEET + at + remote + wait(0) + CLUSTER, "deadlock", grid=2, cluster=2, block=32)
    assert near(found) == [("other-cta", ("mbarrier.arrive", 0))]
    pins(found.near_misses[0].why)


def test_a_ring_without_its_last_release():
    """The stages have completed other numbers of phases, which differ by one: no arrival is a near miss."""
    stages = init().strip() + init("+8")
    release, meet = "@%p4 ", "bar.sync 1, 64;\n"
    waits = wait(0) + wait(1, "+8") + meet + wait(2, "", 1) + wait(3, "+8", 1) + "bra END;\n"
    releases = arrive(guard=release) + arrive("+8", release) + meet + arrive(guard=release)
    found = only(stages + SHOW + "@!%p2 bra READ;\n" + waits + "READ:\n" + releases + "END:\n", "deadlock")
    assert (found.where, near(found)) == ("mbarrier 0x408", [("ended-arriver", ("mbarrier.arrive", 1))])
    pins(found.missing)
    pins(found.missing)


def test_a_peer_whose_rounds_have_ended():
    remote = "mapa.shared::cluster.u32 %r11, %r8, 0;\n"
    send = "@!%p5 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];\n"
    body = (
        "setp.eq.and.u32 %p6, %r2, 0, !%p5;\n" + init() + MEET + remote + send.replace("!%p5", "%p6")
        + "@!%p5 bra END;\n" + wait(0) + wait(1, parity=1) + "END:\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n"
    )  # fmt: skip
    found = only(body, "deadlock", grid=2, cluster=2, block=32)
    assert near(found) == [("absent-peer", ("mbarrier.arrive", 0))]
    pins(found.near_misses[0].why)
    assert found.near_misses[0].side.cta == (1, 0, 0)


def test_an_arrival_of_the_waiter_itself():
    found = only(init() + SHOW + "@!%p1 bra END;\n" + wait(0) + arrive(guard="") + "END:\n", "deadlock")
    assert near(found) == [("own-arrival", ("mbarrier.arrive", 0))]


def test_one_named_barrier_of_two_groups():
    groups = "setp.lt.u32 %p2, %r2, 64;\n@!%p2 bra OTHER;\nbar.sync 1, 64;\nbar.sync 1, 64;\nbra END;\n"
    groups += "OTHER: bar.sync {}, 64;\nEND:\n"
    found = only(groups.format(1), "mixed-generation", block=128)
    assert [kind for kind, _ in near(found)] == ["shared-barrier"]
    pins(found.advice[1])
    assert not hazards(groups.format(2), block=128)
    both = only("bar.sync 1, 32;\n", "mismatched-count", block=64)
    assert near(both) == [("shared-barrier", ("bar.sync", 0))]


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        ("@%p2 bar.sync 1, 32;\n@!%p2 bar.sync 1, 64;\n", "warp 0,", "warps 1-2,"),
        ("@!%p2 bra OTHER;\nbar.sync 1, 32;\nbra END;\nOTHER: bar.sync 1, 64;\nEND:\n", "warp 0,", "warps 1-2,"),
        ("selp.u32 %r5, 32, 64, %p2;\nbar.sync 1, %r5;\n", "", "warps 1-2 are the 64 threads"),
    ],
    ids=["guards", "branches", "registers"],
)
def test_one_named_barrier_of_two_groups_of_other_sizes(body, first, second):
    (found,) = hazards(body, block=96)
    (miss,) = found.near_misses
    assert miss.kind == "shared-barrier"
    assert first in miss.why
    assert second in miss.why
    assert "64" in miss.why
    pins(found.advice[1])


COPY_BY_0 = "@%p1 cp.async.ca.shared.global [%r1], [%rd1], 4;\n@%p1 cp.async.commit_group;\n"
OWN = "@%p4 cp.async.ca.shared.global [%r4+512], [%rd1], 4;\n@%p4 cp.async.commit_group;\n"
READ_IT = "@%p4 ld.shared.u32 %r9, [%r1];\n"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (COPY_BY_0 + OWN + "@%p4 cp.async.wait_group 0;\nbar.sync 0;\n" + READ_IT, "cp.async.wait_group"),
        (COPY_BY_0 + OWN + "bar.sync 0;\n@%p4 cp.async.wait_group 0;\n" + READ_IT, "cp.async.wait_group"),
        (COPY_BY_0 + "@%p4 cp.async.wait_all;\nbar.sync 0;\n" + READ_IT, "cp.async.wait_all"),
        (COPY_BY_0 + "@%p4 cp.async.wait_all;\nbar.sync 0;\n@%p4 st.shared.u32 [%r1], 3;\n", "cp.async.wait_all"),
    ],
    ids=["a group of its own", "behind the barrier", "all", "overwritten"],
)
def test_a_wait_for_the_copies_of_another_thread(body, what):
    found = hazards(body)
    assert {hazard.kind for hazard in found} >= {"in-flight-at-exit"}
    for hazard in found:
        assert near(hazard) == [("others-groups", (what, 1))]
        pins(hazard.near_misses[0].why)
    assert not hazards(body.replace("@%p4 cp.async.wait", "cp.async.wait").replace(READ_IT, "bar.sync 0;\n" + READ_IT))


@pytest.mark.parametrize("who", ["%p4", "%p1"])
def test_a_wait_of_a_thread_that_has_nothing_to_wait_for(who):
    body = f"st.shared.u32 [%r4], 1;\n{STORE[:31]}bar.sync 0;\n{STORE[31:]}@%p1 {COMMIT}@{who} {WAIT_READ}bar.sync 0;\n"
    found = hazards(body + "st.shared.u32 [%r4], 2;\n")
    if who == "%p1":
        assert not found
        return
    assert {h.kind for h in found} >= {"unordered-write"}
    for hazard in found:
        assert near(hazard) == [("nothing-to-wait-for", ("cp.async.bulk.wait_group", 1))]


def test_a_wait_with_no_barrier_behind_it():
    expect = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;\n@%p1 "
    body = init() + SHOW + expect + COPY + "@!%p2 bra OTHER;\n" + wait(0) + "OTHER:\n"
    (found,) = hazards(body + "ld.shared.u32 %r9, [%r4];\n")
    assert found.kind == "unordered-read"
    assert near(found) == [("no-barrier-behind", ("mbarrier.try_wait", 0))]
    pins(found.near_misses[0].why)
    assert not hazards(body + "bar.sync 0;\nld.shared.u32 %r9, [%r4];\n")


def test_arrivals_for_a_producer_behind_a_wait_are_no_barrier_of_those_who_arrive():
    """Warp 2 waits for a stage to be free; warps 0 and 1 free it, and do not meet behind the wait of warp 0."""
    producer = "setp.lt.u32 %p6, %r2, 64;\n@%p6 bra ON{0};\n{1}ON{0}:\n"
    first = init(count=2) + SHOW + producer.format(1, wait(0, parity=1)) + "bar.sync 0;\n"
    frees = arrive() + arrive(guard="@%p4 ")
    body = f"st.shared.u32 [%r4], 1;\n{STORE[:31]}{first}{STORE[31:]}@%p1 {COMMIT}@%p1 {WAIT_READ}{{}}"
    body += "@%p4 st.shared.u32 [%r1], 2;\n" + producer.format(2, wait(1))
    (found,) = hazards(body.format(frees), block=96)
    assert found.kind == "unordered-write"
    assert near(found) == [("no-barrier-behind", ("cp.async.bulk.wait_group", 0))]
    assert not hazards(body.format(frees + "bar.sync 0;\n"), block=96)


def test_a_release_before_the_wait_for_what_still_reads():
    fill = f"st.shared.u32 [%r4], 1;\n{STORE[:31]}{init()}{SHOW}"
    issue, other = STORE[31:] + "@%p1 " + COMMIT, "@%p2 bra END;\n" + wait(0) + "st.shared.u32 [%r4], 2;\nEND:\n"
    early = fill + issue + arrive() + "@%p1 " + WAIT_READ + other
    (found,) = hazards(early.replace("[%r4], 2", "[%r1], 2").replace("st.shared.u32 [%r1]", "@%p4 st.shared.u32 [%r1]"))
    assert found.kind == "unordered-write"
    assert near(found) == [("early-release", ("mbarrier.arrive", 0))]
    assert found.between.before.line == found.near_misses[0].side.chain[0].line != found.after.chain[0].line
    late = fill + issue + "@%p1 " + WAIT_READ + arrive() + other
    assert not hazards(late)


@pytest.mark.parametrize(
    "read",
    [
        "ld.shared.u32 %r9, [%r1];\n",
        STORE[31:].replace("%p1", "%p4").replace("%rd1", "%rd1+1024") + f"@%p4 {COMMIT}@%p4 {WAIT_READ}",
    ],
)
def test_a_release_before_what_reads_behind_a_wait_for_something_else(read):
    expect = "mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;\n"
    body = (
        init() + init("+8") + init("+16") + SHOW + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\n"
        + "FILL:\n" + expect + COPY + arrive("+16", guard="") + wait(0, "+8") + expect + COPY + wait(3, "", 1)
        + "bra END;\nREAD:\n" + wait(1) + "{}" + wait(2, "+16") + "{}END:\n"
    )  # fmt: skip
    release = arrive("+8", guard="")
    found = only(body.format(release, read), "unordered-write")
    assert near(found) == [("release-before-use", ("mbarrier.arrive", 1))]
    pins(found.near_misses[0].why)
    assert not hazards(body.format("", f"{read}fence.proxy.async.shared::cta;\n{release}"))


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_release_before_a_write_to_the_stage_is_no_matter_of_parity(is_seen):
    """As where a result is staged in the memory of what was loaded; the next copy has come before, or comes later."""
    expect = "mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;\n"
    come, later = (arrive("+16", guard=""), wait(3, "+16")) if is_seen else ("", "")
    body = (
        init() + init("+8") + init("+16") + SHOW + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\n"
        + "FILL:\n" + expect + COPY + wait(0, "+8") + "fence.proxy.async.shared::cta;\n" + expect + COPY + come
        + wait(2, "", 1) + "bra END;\nREAD:\n" + wait(1) + "{}" + later + "st.shared.u32 [%r1], 7;\n{}END:\n"
    )  # fmt: skip
    release = arrive("+8", guard="")
    found = only(body.format(release, ""), "unordered-write")
    assert "parity" not in found.advice[1]
    if is_seen:
        assert near(found) == [("release-before-use", ("mbarrier.arrive", 1))]
        assert "writes them" in found.near_misses[0].why
    else:
        assert "stands before the write" in found.advice[0]
        assert not hazards(body.format("", f"fence.proxy.async.shared::cta;\n{release}"))


def test_a_release_of_an_earlier_fill_is_not_blamed():
    """The third copy waits once more for the release of the first fill, and the second one is not released yet."""
    fill = "mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;\n" + COPY
    first = "ld.shared.u32 %r9, [%r1];\nfence.proxy.async.shared::cta;\n"
    second = "cp.async.bulk.global.shared::cta.bulk_group [%rd1+1024], [%r1], 256;\n" + COMMIT
    body = (
        init() + init("+8") + init("+16") + SHOW + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\n"
        + "FILL:\n" + fill + wait(0, "+8") + fill + wait(1, "+16") + wait(2, "+8") + fill + wait(3) + "bra END;\n"
        + "READ:\n" + wait(4) + first + arrive("+8", guard="") + wait(5, "", 1) + second + arrive("+16", guard="")
        + WAIT_READ + "END:\n"
    )  # fmt: skip
    assert "release-before-use" not in kinds_of(body)


def test_every_form_has_them():
    found = hazards(ring(0))
    (told,) = found.to_json()["hazards"]
    (miss,) = told["near_misses"]
    assert (miss["kind"], miss["side"]["warp"]) == ("first-parity", 0)
    assert [wait["for"] for wait in told["waits"]] == ["mbarrier 0x408", "mbarrier 0x400"]
    assert [one["waits_for"] for wait in told["waits"] for one in wait["brought_by"]] == [
        "mbarrier 0x400",
        "mbarrier 0x408",
    ]
    text = str(found)
    pins(text)
    assert "near miss" in found._repr_html_()
    (run,) = json.loads(json.dumps(found.to_sarif()))["runs"]
    (result,) = run["results"]
    assert miss["why"] in result["message"]["text"]
    assert len(result["relatedLocations"]) == 3
    assert isinstance(HazardError(found).hazards, Hazards)


def test_a_later_round_of_who_fills_is_no_first_wait():
    """The stage was empty at first, for parity 1, and is not freed: parity 0 is right there."""
    fill = "FILL:\n" + wait(0, "+8", 1) + arrive(guard="") + wait(1, "+8", 0) + arrive(guard="") + "bra END;\n"
    body = init() + init("+8") + SHOW + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\n" + fill
    found = only(body + "READ:\n" + wait(2) + wait(3, parity=1) + arrive("+8", guard="") + "END:\n", "deadlock")
    assert "first-parity" not in [kind for kind, _ in near(found)]


def test_a_waiter_that_fills_nothing_is_told_nothing_of_parity():
    """The second warp meets the first at a barrier before it arrives: parity 1 would let the first go too early."""
    warps = "@!%p2 bra OTHER;\n" + wait(0) + "{}bar.sync 3, 64;\nbra END;\nOTHER: bar.sync 3, 64;\n"
    body = init(count=32) + SHOW + warps + arrive(guard="") + "END:\n"
    for between in ("", "st.shared.u32 [%r1], 7;\n"):
        found = only(body.format(between), "deadlock")
        assert "first-parity" not in [kind for kind, _ in near(found)]
        assert not any("parity 1" in line for line in found.advice)


def test_half_a_warp_that_waits_for_the_other_half_is_told_nothing_of_parity():
    body = (
        init() + SHOW + "setp.ge.u32 %p6, %r2, 16;\n@%p6 bra OTHER;\n" + wait(0) + "bar.warp.sync -1;\nbra END;\n"
        + "OTHER: bar.warp.sync -1;\nsetp.ne.u32 %p6, %r2, 16;\n@%p6 bra END;\n" + arrive(guard="") + "END:\n"
    )  # fmt: skip
    found = only(body, "deadlock", block=32)
    assert near(found) == []
    bringers = {wait.at: [side.who for side, _ in wait.bringers] for wait in found.waits}
    assert bringers["mbarrier 0x400"] == ["thread 16 of CTA (0, 0, 0)"]


def test_threads_that_arrived_and_have_ended():
    """The consumer leaves after two rounds, the producer goes on for a third; its own branch leads to no arrival."""
    body = (
        init() + SHOW + "@!%p1 bra READ;\n" + wait(0) + wait(1, parity=1) + wait(2)
        + "READ: setp.ne.u32 %p6, %r2, 32;\n@%p6 bra END;\n" + "mov.u32 %r5, 0;\n"
        + "AGAIN:\n" + arrive(guard="") + "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p6, %r5, {};\n@%p6 bra AGAIN;\nEND:\n"
    )  # fmt: skip
    found = only(body.format(2), "deadlock")
    assert near(found) == [("ended-arriver", ("mbarrier.arrive", 1))]
    pins(found.near_misses[0].why)


def test_a_first_wait_for_parity_1_of_who_reads():
    expect = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;\n@%p1 "
    body = init() + SHOW + expect + COPY + "bar.sync 0;\nst.shared.u32 [%r4+512], 1;\n"
    for parity, told in ((1, True), (0, False)):
        kinds = [kind for one in hazards(body + wait(0, parity=parity)) for kind, _ in near(one)]
        assert ("second-parity" in kinds) == told
    later = only(body + wait(0) + wait(1, parity=1), "deadlock")
    assert near(later) == []


@pytest.mark.parametrize("commits", ["", "@%p1 " + COMMIT])
def test_an_operation_that_its_thread_has_never_committed(commits):
    body = f"st.shared.u32 [%r4], 1;\n{STORE[:31]}bar.sync 0;\n{STORE[31:]}{commits}@%p1 {WAIT_READ}bar.sync 0;\n"
    found = hazards(body + "st.shared.u32 [%r4], 2;\n")
    assert bool(found) == (not commits)
    for hazard in found:
        assert near(hazard) == [("never-committed", ("cp.async.bulk.wait_group", 0))]


@pytest.mark.parametrize(("left", "others", "is_ordered"), [(1, 0, False), (1, 1, True), (2, 1, False), (0, 0, True)])
def test_a_wait_that_leaves_the_latest_groups(left, others, is_ordered):
    wait_some = f"@%p1 cp.async.bulk.wait_group.read {left};\nbar.sync 0;\n"
    body = f"st.shared.u32 [%r4], 1;\n{STORE[:31]}bar.sync 0;\n{STORE[31:]}" + ("@%p1 " + COMMIT) * (1 + others)
    found = hazards(body + wait_some + "st.shared.u32 [%r4], 2;\n")
    assert {h.kind for h in found} == (set() if is_ordered else {"unordered-write", "in-flight-at-exit"})
    for hazard in found:
        assert near(hazard) == [("leaves-groups", ("cp.async.bulk.wait_group", 0))]


BEFORE_COPY, COPIED = f"st.shared.u32 [%r4], 1;\n{STORE[:31]}bar.sync 0;\n", STORE[31:]
COMMITS, WAITS = "@%p1 " + COMMIT, "@%p1 " + WAIT_READ


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (COMMITS + COPIED + WAITS, "never-committed"),
        (COMMITS * 2 + COPIED + WAITS, "never-committed"),
        (COPIED + COMMITS + WAITS + COPIED + WAITS, "never-committed"),  # the commit of the first copy alone
        (COPIED + WAITS + COMMITS, "late-commit"),
        (COMMITS + COPIED + WAITS + COMMITS, "late-commit"),
        (WAITS + COMMITS + COPIED, None),  # that wait is of what came before
        (COMMITS + COPIED + COMMITS + WAITS, None),
    ],
)
def test_commits_that_do_not_stand_between_a_copy_and_the_wait(body, told):
    found = hazards(BEFORE_COPY + body + "bar.sync 0;\nst.shared.u32 [%r4], 2;\n")
    if told is None:
        assert bool(found) == body.startswith(WAITS)
        assert not {kind for hazard in found for kind, _ in near(hazard)} & {"never-committed", "late-commit"}
        return
    of_source = [hazard for hazard in found if "shared memory" in hazard.where]
    assert {hazard.kind for hazard in of_source} >= {"unordered-write"}
    for hazard in of_source:
        assert near(hazard) == [(told, ("cp.async.bulk.wait_group", 0))]


def test_a_commit_before_copies_of_threads():
    copies = (
        "cp.async.commit_group;\ncp.async.ca.shared.global [%r4], [%rd1], 4;\n{}cp.async.wait_group 0;\nbar.sync 0;\n"
    )
    found = hazards(copies.format("") + ACROSS)
    assert {hazard.kind for hazard in found} == {"unordered-read", "in-flight-at-exit"}
    for hazard in found:
        assert [kind for kind, _ in near(hazard)] == ["never-committed"]
    assert not hazards(copies.format("cp.async.commit_group;\n") + ACROSS)
    alone = "cp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.wait_all;\n"  # it commits by itself
    assert [*kinds_of(alone + ACROSS)] == ["no-barrier-behind"]


@pytest.mark.parametrize("reads", [".read", ""])
def test_a_wait_of_reads_before_what_a_store_has_written_is_read(reads):
    wait_for = f"@%p1 cp.async.bulk.wait_group{reads} 0;\nbar.sync 0;\n"
    body = ADDRESS + BEFORE_COPY + COPIED + COMMITS + wait_for + "ld.global.u32 %r9, [%rd4];\n"
    found = hazards(body)
    assert bool(found) == bool(reads)
    for hazard in found:
        assert near(hazard) == [("reads-only", ("cp.async.bulk.wait_group", 0))]
    left = hazards(body.replace(f"{reads} 0", f"{reads} 1"))
    assert [near(hazard) for hazard in left if hazard.kind == "unordered-read"] == [
        [("leaves-groups", ("cp.async.bulk.wait_group", 0))]
    ]


@pytest.mark.parametrize("wide", ["bar.arrive 1, 64", "barrier.cta.arrive.aligned 1, 64"])
def test_a_reader_that_arrives_at_a_named_barrier_and_does_not_wait(wide):
    body = "st.shared.u32 [%r4], 1;\n@%p2 bar.sync 1, 64;\n@!%p2 {};\n{}" + ACROSS.replace("ld.", "@!%p2 ld.")
    (found,) = hazards(body.format(wide, ""))
    assert near(found) == [("arrives-only", (wide.split()[0].replace(".cta", "").removesuffix(".aligned"), 1))]
    pins(found.near_misses[0].why)
    assert not hazards(body.format("bar.sync 1, 64", ""))
    assert not hazards(body.format(wide, "bar.sync 0;\n"))
    assert kinds_of(body.format("bar.arrive 2, 64", "").replace("bar.sync 1, 64", "bar.arrive 1, 64")) == {}


def test_a_reader_that_arrives_at_an_mbarrier_and_does_not_wait():
    arrives = arrive(guard="")
    assert kinds_of(pair(arrives, arrives)) == {"arrives-only": ("mbarrier.arrive", 1)}
    assert kinds_of(pair(arrives, arrive("+8", guard=""))) == {}
    assert not hazards(pair(arrives, wait(0)))


def test_a_reader_that_arrives_while_a_copy_s_thread_has_waited():
    body = (
        BEFORE_COPY
        + COPIED
        + COMMITS
        + WAITS
        + "@%p2 bar.sync 1, 64;\n@!%p2 {} 1, 64;\n@!%p2 st.shared.u32 [%r4], 2;\n"
    )
    assert kinds_of(body.format("bar.arrive")) == {"arrives-only": ("bar.arrive", 1)}
    assert not hazards(body.format("bar.sync"))


def test_a_wait_before_the_group_is_no_near_miss():
    body = f"st.shared.u32 [%r4], 1;\n{STORE[:31]}bar.sync 0;\n@%p1 {COMMIT}@%p1 cp.async.bulk.wait_group.read 1;\n"
    found = hazards(body + f"{STORE[31:]}@%p1 {COMMIT}bar.sync 0;\nst.shared.u32 [%r4], 2;\n")
    assert "leaves-groups" not in [kind for hazard in found for kind, _ in near(hazard)]


# Barriers beside the one that counts.

EXPECT = expect(256)
ONLY_WARP_0, ACROSS = "@!%p2 bra OTHER;\n", "xor.b32 %r9, %r4, 128;\nld.shared.u32 %r10, [%r9];\n"
STAGES = init() + init("+8") + SHOW
LOAD = EXPECT + "@%p1 " + COPY


def kinds_of(body, **options):
    """Return the near misses of the accesses that nothing orders, and of those that lack a fence."""
    told = [one for one in hazards(body, **options) if one.kind.startswith(("unordered", "missing-p", "unfenced"))]
    assert told
    return {kind: side for one in told for kind, side in near(one)}


def test_a_wait_for_another_mbarrier_than_that_of_the_bytes():
    read = "ld.shared.u32 %r9, [%r4];\n"
    body = STAGES + LOAD + arrive("+8") + wait(0, "+8") + read
    assert kinds_of(body) == {"other-barrier": ("mbarrier.try_wait", 0)}
    (found,) = (one for one in hazards(body) if one.kind == "unordered-read")
    pins(found.near_misses[0].why)
    assert not hazards(STAGES + LOAD + arrive("+8") + wait(0, "+8") + wait(1) + read)


def test_a_wait_before_the_copy_is_none_for_its_bytes():
    body = STAGES + arrive("+8") + wait(0, "+8") + LOAD + "ld.shared.u32 %r9, [%r4];\n"
    assert kinds_of(body) == {}


@pytest.mark.parametrize("meets", [True, False])
def test_a_wait_of_another_thread_for_another_mbarrier(meets):
    """A barrier hands on that thread 0 has waited: without it the wait has nothing to do with the others."""
    behind = "OTHER: " + "bar.sync 0;\n" * meets + "@!%p1 ld.shared.u32 %r9, [%r4];\n"
    body = STAGES + LOAD + arrive("+8") + "@!%p1 bra OTHER;\n" + wait(0, "+8") + behind
    assert kinds_of(body) == ({"other-barrier": ("mbarrier.try_wait", 0)} if meets else {})


def test_a_read_before_the_copy_that_waited_for_another_mbarrier():
    body = (
        STAGES + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\nREAD:\n" + arrive("+8", guard="") + wait(0, "+8")
        + "ld.shared.u32 %r9, [%r1];\nbra END;\nFILL: nanosleep.u32 5;\n" + LOAD + wait(1) + "END:\n"
    )  # fmt: skip
    assert "other-barrier" in kinds_of(body)


def test_who_overwrites_bytes_waits_for_no_copy():
    """Both copies are the producer's, which waits for who empties the stage: that is its barrier."""
    body = STAGES + LOAD + arrive("+8") + wait(0, "+8") + EXPECT.replace("[%r8]", "[%r8+8]") + "@%p1 "
    assert kinds_of(body + COPY.replace("[%r8]", "[%r8+8]") + wait(1, "+8", 1)) == {}


def pair(fill, read):
    """Let thread 0 write and thread 32 read what it wrote, each with some steps."""
    return (
        STAGES + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\nFILL:\nst.shared.u32 [%r1], 7;\n" + fill
        + "bra END;\nREAD:\n" + read + "ld.shared.u32 %r9, [%r1];\nEND:\n"
    )  # fmt: skip


def test_an_arrival_at_another_barrier_than_the_one_that_is_waited_for():
    empty, full = arrive("+8", guard=""), arrive(guard="")
    wrong = kinds_of(pair(empty, full + wait(0)))
    assert wrong == {"other-arrival": ("mbarrier.arrive", 0), "other-barrier": ("mbarrier.try_wait", 1)}
    assert not hazards(pair(full, wait(0)))
    assert kinds_of(pair(empty, "")) == {}  # no wait is wrong, there is none
    early = pair("", full + wait(0)).replace("st.shared.u32 [%r1], 7;\n", empty + "st.shared.u32 [%r1], 7;\n")
    assert kinds_of(early) == {}  # it says nothing of the write, at whatever barrier


def test_an_arrival_at_another_named_barrier():
    groups = f"{ONLY_WARP_0}st.shared.u32 [%r4], 1;\nbar.sync 1, 32;\nbra END;\nOTHER: {{}}{ACROSS}END:\n"
    assert kinds_of(groups.format("bar.sync 2, 32;\n")) == {
        "other-arrival": ("bar.sync", 0),
        "other-barrier": ("bar.sync", 1),
    }
    assert kinds_of(groups.format("")) == {"barrier-of-others": ("bar.sync", 0)}
    late = groups.format("").replace("1, 32", "1, 64").replace("END:", "bar.sync 1, 64;\nEND:")
    assert kinds_of(late) == {}  # it comes to that barrier, behind the read


def test_a_wait_that_saw_an_earlier_phase_than_that_of_the_arrival():
    """Two arrivals complete the phase in which the reader has arrived; a wait for parity 1 passes before that."""
    read = "@%p1 st.shared.u32 [%r1], 0;\n@%p1 ld.shared.u32 %r9, [%r1];\n" + init(count=2) + SHOW
    overwrite = "@!%p4 bra END;\n" + wait(0, parity=1) + "st.shared.u32 [%r1], 7;\nEND:\n"
    body = read.replace(SHOW, SHOW + "@%p1 ld.shared.u32 %r9, [%r1];\n" + arrive()) + overwrite
    assert kinds_of(body) == {"earlier-phase": ("mbarrier.try_wait", 1)}
    assert not hazards(
        body.replace("@!%p4 bra END", arrive(guard="@%p4 ") + "@!%p4 bra END").replace(", 1;\n@!%p3", ", 0;\n@!%p3")
    )


# Barriers of too few.


def test_bar_warp_sync_between_two_warps():
    write = "st.shared.u32 [%r4], 1;\n"
    found = kinds_of(write + "bar.warp.sync -1;\n" + ACROSS)
    assert [*found] == ["warp-barrier"]
    assert kinds_of("bar.warp.sync -1;\n" + write + ACROSS) == {}
    of_one_warp = write + "xor.b32 %r9, %r4, 4;\nld.shared.u32 %r10, [%r9];\nbar.warp.sync -1;\n"
    assert kinds_of(of_one_warp) == {}
    assert not hazards(write + "bar.sync 0;\n" + ACROSS)


ADDRESS = "cvt.u64.u32 %rd3, %r3;\nadd.u64 %rd4, %rd1, %rd3;\nxor.b32 %r15, %r3, 128;\ncvt.u64.u32 %rd6, %r15;\n"
ADDRESS += "add.u64 %rd5, %rd1, %rd6;\n"


def test_barriers_of_too_few_around_global_memory():
    read = "ld.global.u32 %r9, [%rd5];\nst.global.u32 [%rd4+512], %r9;\n"
    assert [*kinds_of(ADDRESS + "st.global.u32 [%rd4], 1;\nbar.warp.sync -1;\n" + read)] == ["warp-barrier"]
    of_ctas = "mov.u32 %r21, %ctaid.x;\nsetp.eq.u32 %p6, %r21, 0;\n@!%p6 bra OTHER;\nst.global.u32 [%rd4], 1;\n"
    body = ADDRESS + of_ctas + "bar.sync 0;\nbra END;\nOTHER: bar.sync 0;\n" + read + "END:\n"
    assert [*kinds_of(body, grid=2)] == ["cta-barrier"]


# Waits with no barrier behind them.


def first_lane(behind, block=32):
    body = init() + SHOW + LOAD + "@!%p1 bra OTHER;\n" + wait(0) + "OTHER: " + behind + "ld.shared.u32 %r9, [%r4];\n"
    return hazards(body, block=block)


def test_a_wait_of_the_first_lane():
    (found,) = first_lane("")
    assert near(found) == [("no-barrier-behind", ("mbarrier.try_wait", 0))]
    pins(found.near_misses[0].why)
    assert not first_lane("bar.warp.sync -1;\n")


def test_a_wait_of_the_first_lane_of_several_warps():
    (found,) = first_lane("", 64)
    assert near(found) == [("no-barrier-behind", ("mbarrier.try_wait", 0))]
    assert "bar.warp.sync" not in found.near_misses[0].why
    (found,) = first_lane("bar.warp.sync -1;\n", 64)
    assert near(found) == [("no-barrier-behind", ("mbarrier.try_wait", 0)), ("warp-barrier", ("bar.warp", 0))]
    assert not first_lane("bar.sync 0;\n", 64)


def test_each_thread_waits_for_its_own_copies_alone():
    copies = "cp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
    found = kinds_of(copies + ACROSS)
    assert [*found] == ["no-barrier-behind"]
    in_a_warp = kinds_of(copies + "xor.b32 %r9, %r4, 4;\nld.shared.u32 %r10, [%r9];\n", block=32)
    assert [*in_a_warp] == ["no-barrier-behind"]
    assert not hazards(copies + "bar.sync 0;\n" + ACROSS)


def test_one_thread_waits_for_what_another_wrote():
    write = init() + SHOW + "@%p4 st.shared.u32 [%r1], 7;\n" + arrive(guard="@%p4 ")
    body = write + "@!%p1 bra OTHER;\n" + wait(0) + "OTHER: {}ld.shared.u32 %r9, [%r1];\n"
    assert kinds_of(body.format("")) == {"no-barrier-behind": ("mbarrier.try_wait", 0)}
    assert not hazards(body.format("bar.sync 0;\n"))


# Fences.

WRITE, FENCE, BAR = "st.shared.u32 [%r4], 1;\n", "fence.proxy.async.shared::cta;\n", "bar.sync 0;\n"
OUT = STORE[31:] + "@%p1 " + COMMIT + "@%p1 " + WAIT_READ


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (FENCE + WRITE + BAR, {"early-fence": ("fence.proxy", 0)}),
        (FENCE + BAR + WRITE + BAR, {}),  # it may be of what came before the barrier
        (WRITE + "@%p4 " + FENCE + BAR, {"fence-elsewhere": ("fence.proxy", 1)}),
        (WRITE + "@%p1 " + FENCE + BAR, {"fence-elsewhere": ("fence.proxy", 0)}),  # it does not know of the others yet
        (WRITE + BAR + "@%p4 " + FENCE, {"fence-elsewhere": ("fence.proxy", 1)}),  # the copy does not know of it
        ("@%p4 st.shared.u32 [%r1], 1;\n" + BAR + "@%p4 " + FENCE, {"late-fence": ("fence.proxy", 1)}),
        (WRITE + "fence.proxy.async.global;\n" + BAR, {"other-fence": ("fence.proxy", 0)}),
        (WRITE + "fence.proxy.alias;\n" + BAR, {"other-fence": ("fence.proxy", 0)}),
        (WRITE + "membar.cta;\n" + BAR, {"other-fence": ("membar.cta", 0)}),
        (WRITE + "fence.acq_rel.cta;\n" + BAR, {"other-fence": ("fence.acq_rel", 0)}),
        (WRITE + "fence.mbarrier_init.release.cluster;\n" + BAR, {}),
        (WRITE + BAR, {}),
    ],
)
def test_fences_beside_the_one_that_is_due(body, told):
    assert kinds_of(body + OUT) == told


@pytest.mark.parametrize(
    "body", [WRITE + FENCE + BAR, WRITE + BAR + "@%p1 " + FENCE, WRITE + "fence.proxy.async;\n" + BAR]
)
def test_fences_that_count(body):
    assert not hazards(body + OUT)


@pytest.mark.parametrize(
    ("fence", "told"),
    [
        ("fence.proxy.async.shared::cta;\n", {"other-fence": ("fence.proxy", 0)}),
        ("membar.gl;\n", {"other-fence": ("membar.gl", 0)}),
        ("@%p4 fence.proxy.async;\n", {"fence-elsewhere": ("fence.proxy", 1)}),
    ],
)
def test_fences_of_global_memory(fence, told):
    body = ADDRESS + "st.global.u32 [%rd4], 1;\n" + fence + BAR + init() + SHOW + LOAD + wait(0)
    assert kinds_of(body) == told
    assert not hazards(body.replace(fence, "fence.proxy.async.global;\n"))


def test_fences_before_an_overwrite():
    read, load = "ld.shared.u32 %r9, [%r4];\n", init() + SHOW + LOAD + wait(0)
    assert kinds_of(WRITE + BAR + FENCE + read + load) == {"early-fence": ("fence.proxy", 0)}
    assert kinds_of(WRITE + FENCE + BAR + read + "@%p4 " + FENCE + load) == {"fence-elsewhere": ("fence.proxy", 1)}
    assert not hazards(WRITE + BAR + read + FENCE + load)


def test_a_fence_before_the_wait_for_a_copy():
    copies = "cp.async.ca.shared.global [%r4], [%rd1+512], 4;\ncp.async.commit_group;\n"
    wait_all = "cp.async.wait_group 0;\n"
    assert kinds_of(copies + FENCE + wait_all + BAR + OUT) == {"early-fence": ("fence.proxy", 0)}
    assert not hazards(copies + wait_all + FENCE + BAR + OUT)


# Deadlocks: who brings bytes, and what came elsewhere.


def reads_first(fill, read, **options):
    """Let thread 0 announce bytes and go on, and thread 32 wait for them; return the deadlock."""
    body = STAGES + EXPECT + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\nFILL:\n" + fill + "bra END;\nREAD: " + wait(0)
    return only(body + read + "END:\n", "deadlock", **options)


def test_who_brings_bytes_is_told_by_the_address_of_the_mbarrier():
    release = arrive("+8", guard="")
    found = reads_first(wait(3, "+8") + COPY, release)
    assert [wait.at for wait in found.waits] == ["mbarrier 0x400", "mbarrier 0x408"]
    assert [(side.warp, at) for side, at in found.waits[0].bringers] == [(0, "mbarrier 0x408")]
    assert found.waits[0].are_sure == (True,)
    pins(found.missing)
    other = reads_first(wait(3, "+8") + COPY.replace("[%r8]", "[%r8+8]"), release)
    assert not [bringer for wait in other.waits if wait.at == "mbarrier 0x400" for bringer in wait.bringers]
    pins(other.missing)


@pytest.mark.parametrize(("mask", "brings"), [(1, False), (2, True), (3, True)])
def test_a_multicast_brings_bytes_to_those_that_its_mask_names(mask, brings):
    meet = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
    copy = f"mov.b16 %rs1, {mask};\n" + COPY.replace(";", ", %rs1;").replace("bytes ", "bytes.multicast::cluster ")
    body = (
        init() + init("+8") + MEET + EXPECT + meet + "@!%p5 bra AWAY;\n@%p1 bra FILL;\nbra END;\n"
        + "FILL: " + wait(0, "+8") + copy + "bra END;\nAWAY: " + wait(1) + "END:\n"
    )  # fmt: skip
    found = only(body, "deadlock", grid=2, cluster=2, block=32)
    (of_peer,) = (wait for wait in found.waits if wait.at == "mbarrier 0x400")
    assert bool(of_peer.bringers) == brings


def test_a_copy_behind_the_wait_for_it():
    found = only(STAGES + "@!%p1 bra END;\n" + EXPECT + wait(0) + COPY + "END:\n", "deadlock")
    assert near(found) == [("own-arrival", ("cp.async.bulk", 0))]


def test_bytes_that_count_at_another_mbarrier():
    found = only(STAGES + EXPECT + "@%p1 " + COPY.replace("[%r8]", "[%r8+8]") + wait(0), "deadlock")
    assert near(found) == [("other-barrier", ("cp.async.bulk", 0))]
    pins(found.advice[1])
    half = STAGES + EXPECT + "@%p1 " + COPY.replace("[%r8]", "[%r8+8]").replace("256", "128") + wait(0)
    assert near(only(half, "deadlock")) == []  # so many bytes are none of those


def test_an_arrival_for_which_nothing_waits():
    fill = arrive("+8", guard="")

    def told(fill, read):
        body = (
            STAGES + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\nFILL:\n" + fill + "bra END;\nREAD:\n" + read + "END:\n"
        )
        return near(only(body, "deadlock"))

    assert told(fill, wait(0)) == [("other-arrival", ("mbarrier.arrive", 0))]
    assert told(fill, wait(0) + wait(1, "+8")) == []  # it waits for that later
    assert told("", fill + wait(0)) == []  # whoever waits has arrived there itself


@pytest.mark.parametrize("ahead", [1, 0])
def test_arrivals_at_the_next_stage_of_a_ring(ahead):
    """The producer fills both stages and waits for the first to be empty: the reader has emptied another one."""
    stages = init().strip() + init("+8").strip() + init("+16").strip() + init("+24")
    full, empty = ("", "+8"), ("+16", "+24")
    fill = "".join(wait(n, empty[n], 1) + arrive(full[n], guard="") for n in (0, 1)) + wait(2, empty[0], 0)
    read = wait(3, full[0]) + arrive(empty[ahead], guard="") + wait(4, full[1]) + wait(5, full[0], 1)
    body = stages.replace("1;@", "1;\n@", 2) + SHOW + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\nFILL:\n" + fill
    found = only(body + arrive(full[0], guard="") * ahead + "bra END;\nREAD:\n" + read + "END:\n", "deadlock")
    assert ("other-arrival" in [kind for kind, _ in near(found)]) == bool(ahead)


def test_a_try_that_failed_is_no_wait():
    tried = "mbarrier.test_wait.parity.shared.b64 %p3, [%r8+8], 0;\n"
    assert kinds_of(STAGES + LOAD + tried + "ld.shared.u32 %r9, [%r4];\n") == {}


def test_bar_warp_sync_of_a_thread_that_tells_others_by_an_arrival():
    write = STAGES + "st.shared.u32 [%r4], 1;\n" + arrive("+8", guard="@%p1 ") + arrive(guard="@%p4 ")
    assert "warp-barrier" not in kinds_of(write + "bar.warp.sync -1;\n" + ACROSS)


def test_stages_that_are_waited_for_in_the_order_of_the_arrivals():
    """The ring begins with its second stage, on both sides."""
    body = init().strip() + init("+8") + SHOW + "@%p1 bra FILL;\n@%p4 bra READ;\nbra END;\nFILL:\n"
    body += arrive("+8", guard="") + "bra END;\nREAD:\n" + wait(0, "+8") + wait(1) + "END:\n"
    assert near(only(body, "deadlock")) == []


def test_bytes_of_the_mbarrier_that_is_waited_for_are_told_with_the_hang():
    """The copy completes on another mbarrier, whose bytes nobody waits for."""
    body = init() + init("+8") + SHOW + expect(256) + "@%p1 " + COPY.replace("[%r8]", "[%r21]") + wait(0)
    found = hazards("add.u32 %r21, %r8, 8;\n" + body)
    told = [(each.kind, each.place.mbarrier, each.diagnosis.case, near(each)) for each in found]
    other = [("other-barrier", ("cp.async.bulk", 0))]
    assert told[:2] == [
        ("uneven-bytes", 1024, "bytes-of-a-deadlock", other),
        ("uneven-bytes", 1032, "bytes-not-expected", []),
    ]
    assert [kind for kind, *_ in told[2:]] == ["deadlock"]
