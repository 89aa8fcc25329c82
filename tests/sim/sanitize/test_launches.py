"""Launches that touch the same memory: in one stream, in several, with and without events, launched early or not."""

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.machine.events import Allocation, HostAccess, StreamEvent
from cutepy.sim.sanitize.memory import global_shadow
from cutepy.sim.sanitize.memory.global_shadow import EXTENT_BYTES, Extent, GlobalShadow
from tests.messages import pins
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_tma import tensor_map

WHERE = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; ld.param.u64 %rd1, [p0]; add.u64 %rd1, %rd1, %rd3;\n"
WRITE = WHERE + "st.global.u32 [%rd1], %r1;\n"
READ = WHERE + "ld.global.u32 %r2, [%rd1];\n"
GO, WAIT = "griddepcontrol.launch_dependents;\n", "griddepcontrol.wait;\n"
NOTHING = "mov.u32 %r1, 0;\n"
BULK_STORE = (
    WHERE
    + """mov.u32 %r2, smem; mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1;
fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 256;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:
"""
)


class Script:
    """A script of host code's events, told to a run with a sanitizer."""

    def __init__(self):
        self.run = Run((), None, sanitize=True)
        self.data, self.more = np.zeros(64, np.uint32), []
        for stream in (1000, 2000):
            self.tell("create", stream, blocking=False)

    def kernel(self, body, stream=0, programmatic=False, smem_bytes=0, grid=1, early_events=(), cluster=1):
        launch(
            body,
            self.data,
            *self.more,
            grid=grid,
            cluster=cluster,
            block=len(self.data) if smem_bytes else 32,
            run=self.run,
            stream=stream,
            programmatic=programmatic,
            early_events=early_events,
            smem_bytes=smem_bytes,
        )

    def tell(self, operation, stream=None, event=None, blocking=True):
        self.run.tell(StreamEvent(operation, stream, event, blocking))

    def touch(self, writes, stream=0):
        starts = np.array([self.data.ctypes.data])
        self.run.tell(HostAccess("aten::add_" if writes else "aten::sum", writes, starts, self.data.nbytes, stream))

    def add_map(self):
        """Make a tensor map of the data, which kernels take as their second argument."""
        raw, data = np.zeros(256, np.uint8), self.run.adopt(self.data)
        self.more.append(raw[-raw.ctypes.data % 128 :][:128])
        self.more[0][:] = np.frombuffer(tensor_map(self.data, (64,)), np.uint8)
        return data

    @property
    def kinds(self):
        return [hazard.kind for hazard in self.run.hazards]


def test_launches_of_one_stream_are_in_order():
    script = Script()
    for body in (WRITE, READ, WRITE, WRITE, READ):
        script.kernel(body, 1000)
    assert script.kinds == []


@pytest.mark.parametrize(
    ("bodies", "kinds"),
    [
        ((WRITE, READ), ["unordered-read"]),
        ((READ, WRITE), ["unordered-write"]),
        ((WRITE, WRITE), ["unordered-write"]),
        ((READ, READ), []),
    ],
)
def test_launches_of_two_streams_are_not(bodies, kinds):
    script = Script()
    script.kernel(bodies[0], 1000)
    script.kernel(bodies[1], 2000)
    assert script.kinds == kinds


@pytest.mark.parametrize(
    "between", ["event", "host waits for the stream", "host waits for the event", "host waits for all"]
)
def test_what_orders_two_streams(between):
    script = Script()
    script.kernel(WRITE, 1000)
    script.tell("record", 1000, 7)
    if between == "event":
        script.tell("wait", 2000, 7)
    else:
        script.tell(
            "synchronise",
            1000 if "stream" in between else None,
            7 if "event" in between else None,
        )
    script.kernel(READ, 2000)
    assert script.kinds == []


def test_an_event_covers_what_came_before_it():
    script = Script()
    script.tell("record", 1000, 7)
    script.kernel(WRITE, 1000)
    script.tell("wait", 2000, 7)
    script.kernel(READ, 2000)
    assert script.kinds == ["unordered-read"]


@pytest.mark.parametrize("waits", ["a stream", "the host"])
@pytest.mark.parametrize(("again", "kinds"), [(1000, []), (3000, ["unordered-read"]), (None, ["unordered-read"])])
def test_an_event_that_is_recorded_again_is_the_last_one(again, kinds, waits):
    """It covers what came before it then, in the stream in which it was recorded then, and nothing else."""
    script = Script()
    script.tell("create", 3000, blocking=False)
    if again == 3000:
        script.kernel(WRITE, 1000)
    script.tell("record", 1000, 7)
    if again != 3000:
        script.kernel(WRITE, 1000)
    if again is not None:
        script.tell("record", again, 7)
    if waits == "a stream":
        script.tell("wait", 2000, 7)
    else:
        script.tell("synchronise", event=7)
    script.kernel(READ, 2000)
    assert script.kinds == kinds


def test_a_wait_for_an_event_that_is_recorded_again_later_is_for_what_it_was():
    script = Script()
    script.tell("record", 1000, 7)
    script.tell("wait", 2000, 7)
    script.kernel(WRITE, 1000)
    script.tell("record", 1000, 7)
    script.kernel(READ, 2000)
    assert script.kinds == ["unordered-read"]


def test_a_wait_is_of_its_stream():
    script = Script()
    script.kernel(WRITE, 1000)
    script.tell("record", 1000, 7)
    script.tell("wait", 0, 7)
    script.kernel(READ, 2000)
    assert script.kinds == ["unordered-read"]


def test_order_is_passed_on_by_a_third_stream():
    script = Script()
    script.kernel(WRITE, 1000)
    script.tell("record", 1000, 7)
    script.tell("wait", 3000, 7)
    script.tell("record", 3000, 8)
    script.tell("wait", 2000, 8)
    script.kernel(READ, 2000)
    assert script.kinds == []


def test_a_kernel_between_changes_nothing():
    script = Script()
    script.kernel(WRITE, 1000)
    script.kernel(NOTHING, 1000)
    script.kernel(READ, 2000)
    assert script.kinds == ["unordered-read"]


BACK = 150


@pytest.mark.parametrize("between", [NOTHING, READ], ids=["others", "reads of the same"])
@pytest.mark.parametrize(("first", "last", "kind"), [(WRITE, READ, "unordered-read"), (READ, WRITE, "unordered-write")])
def test_a_race_is_found_however_many_launches_are_between(between, first, last, kind):
    script = Script()
    script.kernel(first, 1000)
    for _ in range(BACK):
        script.kernel(between, 2000)
    script.kernel(last, 2000)
    assert script.kinds == [kind]
    assert not script.run.certificates[-1].is_certified or between == first == READ


@pytest.mark.parametrize("between", [NOTHING, READ, WRITE, READ + WRITE.replace(WHERE, "")])
def test_launches_in_order_are_certified_however_many_they_are(between):
    script = Script()
    for _ in range(BACK):
        script.kernel(between, 1000)
    script.tell("record", 1000, 7)
    script.tell("wait", 2000, 7)
    script.kernel(WRITE, 2000)
    assert script.kinds == []
    assert all(one.is_certified for one in script.run.certificates)


def test_the_host_is_found_to_race_however_many_launches_are_between():
    script = Script()
    script.touch(True, 1000)
    for _ in range(BACK):
        script.kernel(NOTHING, 2000)
        script.touch(False, 3000)
    assert script.kinds == ["unordered-read"]


def test_touches_that_no_memory_leads_to_are_dropped(monkeypatch):
    monkeypatch.setattr(global_shadow, "_MANY_TOUCHES", 20)
    script = Script()
    script.kernel(READ, 2000)
    for body in (WRITE, READ) * BACK:
        script.kernel(body, 1000)
    assert script.kinds == ["unordered-write"]
    assert len(script.run._sanitizer._global.shadow._touches) < 60


@pytest.mark.parametrize(("kept", "kinds"), [(1 << 26, ["unordered-write"]), (8, [])])
def test_history_that_is_dropped_leaves_no_certificate(monkeypatch, kept, kinds):
    """Two streams read a half each, another one reads all of it and then writes: behind its read stand both."""
    monkeypatch.setattr(global_shadow, "_MOST_HISTORY", kept)
    script = Script()
    script.tell("create", 3000, blocking=False)
    for at in (0, 128):  # what is behind the second one's read lets what is behind the first one's be dropped
        for stream, reads in ((1000, "ge"), (3000, "lt"), (2000, None)):
            some = "" if reads is None else f"setp.{reads}.u32 %p1, %r1, 16; @%p1 bra END;\n"
            script.kernel(READ.replace(WHERE, WHERE + some).replace("[%rd1]", f"[%rd1+{at}]") + "END:\n", stream)
    script.kernel(WRITE, 2000)
    assert script.kinds == kinds
    assert not script.run.certificates[-1].is_certified


def test_stream_0_waits_for_streams_that_are_not_made_otherwise():
    script = Script()
    script.kernel(WRITE, 3000)
    script.kernel(READ, 0)
    script.kernel(WRITE, 3000)
    assert script.kinds == []
    script.kernel(READ, 2000)
    assert script.kinds == ["unordered-read"]


@pytest.mark.parametrize(
    ("forks", "joins", "kinds"),
    [(True, True, []), (False, True, ["unordered-read"]), (True, False, ["unordered-write"])],
)
def test_branches_of_a_graph_are_ordered_by_its_events(forks, joins, kinds):
    """Stream 2000 stands for one that the graph has of its own."""
    script = Script()
    script.kernel(WRITE, 1000)
    script.tell("graph", 1000)
    script.tell("record", 1000, 7)
    if forks:
        script.tell("wait", 2000, 7)
    script.kernel(READ, 2000)
    script.tell("record", 2000, 8)
    if joins:
        script.tell("wait", 1000, 8)
    script.kernel(WRITE, 1000)
    script.tell("end_graph", 1000)
    script.kernel(READ, 1000)
    assert script.kinds == kinds


@pytest.mark.parametrize("first", ["kernel", "host"])
def test_what_the_host_does_in_another_stream(first):
    script = Script()
    if first == "kernel":
        script.kernel(WRITE, 1000)
        script.touch(False, 0)
        script.touch(False, 1000)
    else:
        script.touch(True, 0)
        script.kernel(READ, 0)
        script.kernel(READ, 1000)
    assert script.kinds == ["unordered-read"]


# Programmatic dependent launch.


@pytest.mark.parametrize(
    "bodies",
    [
        (WRITE, WAIT + READ),
        (READ, WRITE),  # the threads of the first have ended: they read no more
        (READ, GO, WRITE),  # and have before the second began
        (WRITE + GO, WAIT + READ),
        (GO + WRITE, WAIT + READ),
        (READ + GO, WAIT + WRITE),
        (WRITE + GO, WAIT + GO, WAIT + READ),
        (WRITE, WAIT, WAIT + READ),
        (READ + GO, WAIT, WRITE),  # the second has waited for the first, and has ended
        (WRITE + GO, "mov.u32 %r1, 0; setp.eq.u32 %p1, %r1, %r1; @%p1 griddepcontrol.wait;\n" + READ),
    ],
    ids=range(10),
)
def test_who_waits_for_the_grid_is_in_order(bodies):
    script = Script()
    for body in bodies:
        script.kernel(body, programmatic=True)
    assert script.kinds == []


@pytest.mark.parametrize(
    ("bodies", "missing"),
    [
        ((WRITE + GO, READ), "before the previous kernel was complete"),
        ((WRITE + GO, READ + WAIT), "before the previous kernel was complete"),
        ((READ + GO, WRITE + WAIT), "before the previous kernel was complete"),
        ((WRITE, READ), "makes none of their writes visible"),  # to have ended is no flush
        ((WRITE, WRITE), "makes none of their writes visible"),
        ((WRITE + GO, GO, WAIT + READ), "that kernel did not wait"),
        ((WRITE, NOTHING, WAIT + READ), "that kernel did not wait"),  # the second may end before the first's flush
        ((WRITE + GO, NOTHING, WAIT + READ), "that kernel did not wait"),  # or before its threads do
        ((READ + GO, NOTHING, WAIT + WRITE), "that kernel did not wait"),
        ((WRITE + GO, NOTHING, WAIT, WAIT + READ), "that kernel did not wait"),
        ((READ + GO, GO, WAIT + WRITE), "that kernel did not wait"),
        ((WRITE + GO, WAIT + GO, READ), "before the previous kernel was complete"),
    ],
    ids=range(12),
)
def test_who_does_not_wait_for_the_grid_is_not(bodies, missing):
    script = Script()
    for body in bodies:
        script.kernel(body, programmatic=True)
    assert script.kinds == ["early-access"]
    assert missing in " ".join(script.run.hazards[0].advice)


RAISE = "bar.warp.sync -1; setp.eq.u32 %p1, %r1, 0;\n@%p1 st.release.gpu.global.u32 [%rd1+128], 1;\n"
FIND = "AGAIN: ld.acquire.gpu.global.u32 %r4, [%rd2+128]; setp.eq.u32 %p2, %r4, 0; @%p2 bra AGAIN;\n"
FIND = "ld.param.u64 %rd2, [p0];\n" + FIND
LOAD = """mov.u32 %r2, smem; setp.eq.u32 %p1, %r1, 0; @!%p1 bra END;
mbarrier.init.shared.b64 [%r2], 1; fence.proxy.async.shared::cta; mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2+128], [%rd2], 128, [%r2];
MORE: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0; @!%p3 bra MORE;
END:
"""


OVERWRITE = (
    WHERE
    + """mov.u32 %r2, smem; mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1;
fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra ON;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 256; cp.async.bulk.commit_group; WAIT
ON: bar.sync 0; LOOK st.shared.u32 [%r3], 7; @%p1 bra END; cp.async.bulk.wait_group 0; END:
"""
)


@pytest.mark.parametrize("look", ["", "ld.shared.u32 %r4, [%r3];"])
@pytest.mark.parametrize(("wait", "kinds"), [("", ["unordered-write"]), ("cp.async.bulk.wait_group.read 0;", [])])
def test_who_reads_beside_a_copy_does_not_know_it_to_be_over(wait, kinds, look):
    script = Script()
    script.kernel(OVERWRITE.replace("WAIT", wait).replace("LOOK", look), smem_bytes=1024)
    assert script.kinds == kinds


@pytest.mark.parametrize("beside", [{"stream": 1000}, {"programmatic": True}], ids=["another stream", "launched early"])
def test_a_flag_that_a_kernel_releases_to_another_one_is_acquired_there(beside):
    kinds = []
    for raises, finds, options in (
        (RAISE, READ.replace(WHERE, WHERE + FIND), {}),
        (RAISE, WHERE + FIND + "fence.proxy.async;\n" + LOAD, {"smem_bytes": 1024}),
        (RAISE, WHERE + FIND + LOAD, {"smem_bytes": 1024}),
        (RAISE.replace("release", "relaxed"), READ.replace(WHERE, WHERE + FIND), {}),
    ):
        script = Script()
        script.kernel(GO + WRITE + raises)
        script.kernel(finds, **beside, **options)
        kinds.append(script.kinds)
    assert kinds[:3] == [[], [], ["missing-proxy-fence"]]
    assert kinds[3] == ["early-access" if "programmatic" in beside else "unordered-read"]


@pytest.mark.parametrize("fence", ["fence.acq_rel.gpu;", "fence.sc.sys;", "membar.gl;", "fence.acq_rel.cta;"])
def test_a_fence_before_a_relaxed_flag_releases_to_another_kernel(fence):
    raises = RAISE.replace("release", "relaxed").replace("setp", f"{fence} setp")
    script = Script()
    script.kernel(GO + WRITE + raises)
    script.kernel(READ.replace(WHERE, WHERE + FIND), stream=1000)
    assert script.kinds == ([] if "cta" not in fence else ["unordered-read"])


@pytest.mark.parametrize(
    ("sends", "stream", "kinds"),
    [
        (WHERE + RAISE, 0, []),
        ("fence.acq_rel.gpu;\n" + WHERE + RAISE.replace("release", "relaxed"), 0, []),
        (WHERE + RAISE.replace("release", "relaxed"), 0, ["unordered-read"]),
        (WHERE + RAISE, 2000, ["unordered-read"]),  # which does not come after the kernel that wrote
    ],
    ids=["a release", "a fence", "neither", "another stream"],
)
def test_a_flag_says_too_what_was_over_before_its_kernel_began(sends, stream, kinds):
    script = Script()
    script.kernel(WRITE)
    script.kernel(sends, stream)
    script.kernel(READ.replace(WHERE, WHERE + FIND), stream=1000)
    assert script.kinds == kinds


def test_one_cta_between_waits_for_all_that_follow():
    """A kernel is complete when each of its threads is, and so after what one of them has waited for."""
    for first, kinds in ((1, []), (9, ["early-access"])):
        script = Script()
        script.kernel(WRITE + GO)
        some = f"mov.u32 %r3, %ctaid.x; setp.ge.u32 %p1, %r3, {first}; @%p1 griddepcontrol.wait;\n"
        script.kernel(some + GO, programmatic=True, grid=2)
        script.kernel(WAIT + READ, programmatic=True)
        assert script.kinds == kinds


def test_a_launch_without_the_attribute_waits_for_all_of_its_stream():
    script = Script()
    script.kernel(WRITE + GO)
    script.kernel(NOTHING, programmatic=True)
    script.kernel(READ)
    script.kernel(READ, programmatic=True)
    assert script.kinds == []


@pytest.mark.parametrize(("between", "kinds"), [(WAIT, []), (NOTHING, ["early-access"])])
def test_a_launch_of_a_graph_waits_for_the_one_before_it_alone(between, kinds):
    script = Script()
    script.tell("graph", 1000)
    script.kernel(WRITE + GO, 1000)
    script.kernel(between, 1000, programmatic=True)
    script.kernel(READ, 1000)
    script.tell("end_graph", 1000)
    assert script.kinds == kinds
    assert not kinds or "in a graph this kernel waits for the previous one alone" in " ".join(
        script.run.hazards[0].advice
    )
    if not kinds:
        script.kernel(READ, 1000)  # the whole graph is before it
        assert script.kinds == []


def test_an_event_recorded_by_a_launch_passes_on_what_that_waited_for():
    script = Script()
    script.kernel(WRITE + GO, 1000)
    script.kernel(WAIT, 1000, programmatic=True, early_events=(7,))
    script.tell("wait", 2000, 7)
    script.kernel(WAIT, 2000)
    script.kernel(READ, 2000)
    assert script.kinds == []


def test_other_streams_are_waited_for_in_full():
    script = Script()
    script.kernel(GO)
    script.kernel(WRITE, 3000)
    script.kernel(READ, programmatic=True)
    assert script.kinds == []


def test_what_the_host_did_before_is_waited_for():
    script = Script()
    script.kernel(NOTHING)
    script.touch(True)
    script.kernel(READ, programmatic=True)
    assert script.kinds == []


BULK = """mov.u32 %r10, smem; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%r10], 1;
fence.mbarrier_init.release.cluster; bar.sync 0; ld.param.u64 %rd1, [p0];
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 128;
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10+128], [%rd1], 128, [%r10];
MORE: mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0; @!%p4 bra MORE;
"""


def test_copies_after_the_wait_need_no_fence():
    for wait, kinds in ((WAIT, []), ("", ["early-access"])):
        script = Script()
        script.kernel(WRITE + GO)
        script.kernel(wait + BULK, programmatic=True, smem_bytes=1024)
        assert script.kinds == kinds


def test_one_thread_waits_and_a_barrier_passes_it_on():
    one = "mov.u32 %r3, %tid.x; setp.eq.u32 %p1, %r3, 0; @%p1 griddepcontrol.wait;\n"
    for barrier, kinds in (("bar.sync 0;\n", []), ("", ["early-access"])):
        script = Script()
        script.kernel(WRITE + GO)
        script.kernel(one + barrier + READ, programmatic=True)
        assert script.kinds == kinds


@pytest.mark.parametrize("cluster", [1, 2])
def test_one_cta_waits_and_a_flag_passes_it_on_to_others(cluster):
    rank = "mov.u32 %r3, %ctaid.x; setp.ne.u32 %p3, %r3, 0; @%p3 bra OTHER;\n"
    for semantics, kinds in (("", []), ("release", ["early-access"]), ("acquire", ["early-access"])):
        script = Script()
        script.kernel(WRITE + GO)
        lines = WHERE + rank + WAIT + RAISE + "bra END;\nOTHER:\n" + FIND + "ld.global.u32 %r2, [%rd1];\nEND:\n"
        lines = lines.replace(semantics, "relaxed") if semantics else lines
        script.kernel(lines, programmatic=True, grid=4, cluster=cluster)
        assert script.kinds == kinds


def test_who_has_not_waited_tells_nobody_that_another_cta_has():
    waits = "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p4, %r3, 2; @%p4 griddepcontrol.wait; @%p4 bra END;\n"
    others = "setp.eq.u32 %p3, %r3, 1; @%p3 bra OTHER;\n" + RAISE + "bra END;\nOTHER:\n" + FIND
    script = Script()
    script.kernel(WRITE + GO)
    script.kernel(waits + WHERE + others + "ld.global.u32 %r2, [%rd1];\nEND:\n", programmatic=True, grid=3)
    assert script.kinds == ["early-access"]


def test_without_the_attribute_kernels_do_not_begin_early():
    script = Script()
    script.kernel(WRITE + GO)
    script.kernel(READ)
    assert script.kinds == []


def test_an_event_between_keeps_a_kernel_from_beginning_early():
    script = Script()
    script.kernel(WRITE + GO)
    script.tell("record", 1000, 7)
    script.tell("wait", 0, 7)
    script.kernel(READ, programmatic=True)
    assert script.kinds == []


# Memory that nothing has written.


def test_memory_that_nothing_wrote():
    script = Script()
    script.run.tell(Allocation(script.data.ctypes.data, script.data.nbytes))
    script.kernel(READ)
    assert script.kinds == ["uninitialised-read"]
    (found,) = script.run.hazards
    pins(str(found))
    wrong, wanted = found.advice
    pins(wrong)
    pins(wanted)


@pytest.mark.parametrize("by", ["kernel", "host", "allocation"])
def test_memory_that_something_wrote(by):
    script = Script()
    script.run.tell(Allocation(script.data.ctypes.data, script.data.nbytes))
    if by == "kernel":
        script.kernel(WRITE)
    elif by == "host":
        script.touch(True)
    else:
        script.run.tell(Allocation(script.data.ctypes.data, script.data.nbytes, written=True))
    script.kernel(READ)
    assert script.kinds == []


@pytest.fixture(params=["small", "large"])
def across(request):
    """A script whose data lies across a boundary of extents, which is none in a small allocation."""
    script = Script()
    room = np.zeros(2 * EXTENT_BYTES // 4, np.uint32)
    middle = -room.ctypes.data % EXTENT_BYTES // 4
    script.data = room[middle - 32 : middle + 32] if middle >= 32 else room[middle + EXTENT_BYTES // 4 - 32 :][:64]
    assert (script.data.ctypes.data + 128) % EXTENT_BYTES == 0
    if request.param == "large":
        script.run.register(room)
        script.room = room
    return script


def test_what_lies_across_an_allocations_end_hides_nothing_behind_it():
    """The host reads words, of which one ends in the next allocation."""
    script = Script()
    start, size = script.data.ctypes.data, script.data.nbytes
    script.run.tell(Allocation(start, size))
    script.kernel(WRITE, 1000)
    script.run.tell(HostAccess("aten::sum", False, np.array([start + size - 2, start + 8]), 4, 2000))
    assert script.kinds == ["unordered-read"]


def test_an_allocation_that_grows_keeps_what_is_known(across):
    across.kernel(WRITE, 1000)
    across.run.register(across.data.base)
    across.touch(False, 2000)
    assert across.kinds == ["unordered-read"]


def test_allocations_that_become_one_keep_what_is_known():
    script, room = Script(), np.zeros(128, np.uint32)
    for part in (room[64:], room[:64]):
        script.data = part
        script.kernel(WRITE, 1000)
    script.run.register(room)
    script.data = room[64:]
    script.touch(False, 2000)
    assert script.kinds == ["unordered-read"]


def test_a_small_allocation_is_one_extent(monkeypatch, across):
    shadows, original = [], GlobalShadow.touch
    monkeypatch.setattr(GlobalShadow, "touch", lambda self, *given: (shadows.append(self), original(self, *given))[1])
    across.kernel(WRITE)
    start = across.data.ctypes.data
    extent = shadows[0]._extent(start, start + across.data.nbytes)
    assert (extent is None) == hasattr(across, "room")


@pytest.mark.parametrize("granule", [16, 8, 2])
@pytest.mark.parametrize("of_part", [16, 8, 2])
def test_memory_that_grows_keeps_who_touched_its_bytes(granule, of_part):
    part, whole = Extent(64, 128), Extent(0, 256)
    part.refine(of_part)
    part.written += np.arange(1, 1 + len(part.written), dtype=np.int32)
    part.read = 100 * part.written
    whole.refine(granule)
    whole.take(part)
    expected = np.zeros(256, np.int32)
    expected[64:128] = np.repeat(part.written, of_part)
    np.testing.assert_array_equal(np.repeat(whole.written, whole.granule), expected)
    np.testing.assert_array_equal(np.repeat(whole.read, whole.granule), 100 * expected)


def test_memory_across_extents_that_the_host_wrote(across):
    across.run.tell(Allocation(across.data.ctypes.data, across.data.nbytes))
    across.touch(True)
    across.kernel(READ)
    assert across.kinds == []


def test_memory_across_extents_that_two_touch(across):
    across.kernel(WRITE, 1000)
    across.touch(False, 2000)
    assert across.kinds == ["unordered-read"]


def test_memory_across_extents_that_a_bulk_copy_touches(across):
    across.run.tell(Allocation(across.data.ctypes.data, across.data.nbytes))
    across.kernel(BULK_STORE, smem_bytes=256)
    across.kernel(READ)
    assert across.kinds == []
    across.kernel(BULK_STORE, 1000, smem_bytes=256)
    across.kernel(WRITE, 2000)
    assert set(across.kinds) == {"unordered-write"}


def test_memory_of_which_something_wrote_a_part():
    script = Script()
    script.run.tell(Allocation(script.data.ctypes.data, script.data.nbytes))
    script.run.tell(HostAccess("aten::fill_", True, np.array([script.data.ctypes.data]), 100, 0))
    script.kernel(READ)
    (found,) = script.run.hazards
    pins(str(found))


# Tensor maps in global memory that launches write and use.

ONE = "ld.param.u64 %rd5, [p1]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @!%p1 bra END;\n"
REPLACED = "tensormap.replace.tile.fill_mode.global.b1024.b32 [%rd5], 0;\n"
STORED = "ld.global.u32 %r3, [%rd5+52]; st.global.u32 [%rd5+52], %r3;\n"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;\n"
BY_MAP = """mov.u32 %r2, smem; mbarrier.init.shared.b64 [%r2+512], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2+512], 256;
cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd5, {0}], [%r2+512];
MORE: mbarrier.try_wait.parity.shared.b64 %p4, [%r2+512], 0; @!%p4 bra MORE;
"""
CHANGES = {"replaced": ONE + REPLACED + "END:\n", "stored": ONE + STORED + "END:\n"}


def use(*lines):
    return {"body": "".join((ONE, *lines, "END:\n")), "smem_bytes": 1024}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tensor_map_of_an_earlier_launch_is_acquired(change):
    for lines, kinds in (((BY_MAP,), ["missing-tensormap-fence"]), ((ACQUIRE, BY_MAP), [])):
        script = Script()
        script.add_map()
        script.kernel(**use(ACQUIRE, BY_MAP))
        script.kernel(change)
        script.kernel(**use(*lines))
        assert script.kinds == kinds
        script.tell("synchronise")
        script.kernel(**use(*lines))
        assert set(script.kinds) == set(kinds)
        (certificate,) = script.run.certificates[-1:]
        assert certificate.is_certified == (not kinds)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_launch_that_begins_early_acquires_a_tensor_map_once_it_has_waited(change):
    for lines, kinds in (
        ((WAIT, ACQUIRE, BY_MAP), set()),
        ((WAIT, BY_MAP), {"missing-tensormap-fence"}),
        ((ACQUIRE, WAIT, BY_MAP), {"missing-tensormap-fence"}),
        ((ACQUIRE, BY_MAP, WAIT), {"missing-tensormap-fence", "early-access"}),
    ):
        script = Script()
        script.add_map()
        script.kernel(GO + change)
        script.kernel(**use(*lines), programmatic=True)
        assert set(script.kinds) == kinds


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_launches_in_two_streams_that_write_and_use_a_tensor_map(change):
    script = Script()
    script.add_map()
    script.kernel(change, 1000)
    script.kernel(**use(ACQUIRE, BY_MAP), stream=2000)
    assert "unordered-read" in script.kinds
    script = Script()
    script.add_map()
    script.kernel(**use(ACQUIRE, BY_MAP), stream=2000)
    script.kernel(change, 1000)
    assert script.kinds == ["unordered-write"]
    script = Script()
    script.add_map()
    script.kernel(**use(ACQUIRE, BY_MAP), stream=2000)
    script.tell("record", 2000, 7)
    script.tell("wait", 1000, 7)
    script.kernel(change, 1000)
    assert script.kinds == []


def test_a_launch_that_begins_early_writes_a_tensor_map_that_the_one_before_it_may_still_read():
    for lines, kinds in ((WAIT, []), ("", ["early-access"])):
        script = Script()
        script.add_map()
        script.kernel(**use(ACQUIRE, GO, BY_MAP))
        script.kernel(lines + CHANGES["replaced"], programmatic=True)
        assert script.kinds == kinds


def test_the_host_writes_a_tensor_map_that_a_launch_in_another_stream_reads():
    script = Script()
    script.add_map()
    script.kernel(**use(ACQUIRE, BY_MAP), stream=2000)
    script.run.tell(HostAccess("aten::copy_", True, np.array([script.more[0].ctypes.data]), 128, 1000))
    assert script.kinds == ["unordered-write"]
    script.tell("synchronise")
    script.kernel(**use(BY_MAP), stream=2000)
    assert script.kinds == ["unordered-write", "missing-tensormap-fence"]
