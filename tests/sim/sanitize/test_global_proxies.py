"""Bulk copies, TMA and tensor maps in global memory: fences, groups that are waited for, and what is missing."""

from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.machine.policies import policy_named
from cutepy.sim.sanitize.memory.tensor_maps import TensorMapUses
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_tma import aligned, tensor_map

START = """mov.u32 %r10, smem; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0; and.pred %p3, %p1, %p2; mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd4, %rd1, %rd3; add.u32 %r11, %r10, 1024; shl.b32 %r12, %r1, 2; add.u32 %r12, %r12, %r11;
st.shared.u32 [%r12], %r1; @%p1 mbarrier.init.shared.b64 [%r10], 1; fence.proxy.async.shared::cta; bar.sync 0;
"""
"""rd1: data; rd2: flags; p1: thread 0, p2: CTA 0, p3: both; rd4: each thread's word; r11: a buffer that is filled."""

FILL = "@%p2 st.global.u32 [%rd4], %r1;\n"
FENCE, BARRIER = "fence.proxy.async;\n", "bar.sync 0;\n"
LOAD = """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 256;
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r11], [%rd1], 256, [%r10];
"""
HERE = "@%p1 mov.u32 %r3, 0;\n"
WAIT = "MORE: mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0; @!%p4 bra MORE;\n"
STORE = """@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r11], 256;
@%p1 cp.async.bulk.commit_group;
"""
STORED = "@%p1 cp.async.bulk.wait_group 0;\n"
READ = "@%p1 cp.async.bulk.wait_group.read 0;\n"
TAKE = "ld.global.u32 %r9, [%rd4];\n"
SEND = "@%p3 st.release.gpu.global.u32 [%rd2], 1;\n"
GET = """@%p2 bra ON; @!%p1 bra ON;
AGAIN: ld.acquire.gpu.global.u32 %r8, [%rd2]; setp.lt.u32 %p5, %r8, 1; @%p5 bra AGAIN;
ON:
"""
LEADERS = """and.b32 %r20, %r1, 31; setp.eq.u32 %p8, %r20, 0; shr.u32 %r21, %r1, 5; shl.b32 %r22, %r21, 7;
add.u32 %r23, %r11, %r22; cvt.u64.u32 %rd8, %r22; add.u64 %rd9, %rd1, %rd8;
"""
"""p8: a lane of each warp; r23, rd9: its part of the buffer, and of the data."""
EACH = """@%p8 cp.async.bulk.global.shared::cta.bulk_group [%rd9], [%r23], 128;
@%p8 cp.async.bulk.commit_group; @%p8 cp.async.bulk.wait_group 0;
"""
TWICE = """mov.u32 %r24, 0; mov.u32 %r28, %r10; mov.u32 %r29, %r11;
ROUND:
{}add.u32 %r28, %r28, 8; add.u32 %r29, %r29, 512; add.u32 %r24, %r24, 1; setp.lt.u32 %p9, %r24, 2; @%p9 bra ROUND;
"""
TWO_BARRIERS = "@%p1 mbarrier.init.shared.b64 [%r10+8], 1; fence.proxy.async; bar.sync 0;\n"
NO_BYTES = "mov.u32 %r31, 0;\n"
LOADS = TWO_BARRIERS + TWICE.format(LOAD.replace("%r11", "%r29").replace("%r10", "%r28"))
LAST = WAIT.replace("MORE", "LAST").replace("[%r10]", "[%r10+8]")


def only(cta, lines):
    """Restrict instructions of thread 0 to a CTA."""
    return lines.replace("@%p1 ", "@%p3 " if cta == 0 else "@%p6 ")


SECOND = "not.pred %p7, %p2; and.pred %p6, %p1, %p7;\n"
ADD = STORE.replace("cp.async.bulk.global", "cp.reduce.async.bulk.global").replace(".bulk_group", ".bulk_group.add.u32")


def hazards_of(*lines, **options):
    """Run a kernel, and return the kinds of what the sanitizer finds."""
    run = Run((), None, sanitize=True)
    data, flags = aligned((1, 4096), "u4"), np.zeros(64, np.uint32)
    run.adopt(data.base)
    launch(
        "".join((START, *lines)),
        data.reshape(-1),
        flags,
        run=run,
        smem_bytes=4096,
        **{"grid": 1, "block": 64, **options},
    )
    return [hazard.kind for hazard in run.hazards]


TWO = {"grid": 2}
RIGHT = {
    "write, fence, barrier, load": ((FILL, FENCE, BARRIER, LOAD, WAIT), {}),
    "write, barrier, fence, load": ((FILL, BARRIER, FENCE, LOAD, WAIT), {}),
    "a fence of global memory": ((FILL, BARRIER, "fence.proxy.async.global;\n", LOAD, WAIT), {}),
    "a fence of global memory, before which one of shared memory came": (
        (FILL, BARRIER, "fence.proxy.async.shared::cta;\nfence.proxy.async.global;\n", BARRIER, LOAD, WAIT),
        {},
    ),
    "a thread's own": (("@%p1 st.global.u32 [%rd1], 1;\n", FENCE, LOAD, WAIT), {}),
    "another CTA's": ((SECOND, FILL, BARRIER, SEND, GET, FENCE, only(1, LOAD), "@%p2 bra END;\n", WAIT, "END:\n"), TWO),
    "store, wait, barrier, read": ((STORE, STORED, BARRIER, TAKE), {}),
    "store, wait, read in another CTA": (
        (only(0, STORE), STORED, SEND, GET, BARRIER, "@!%p2 ld.global.u32 %r9, [%rd4];\n"),
        TWO,
    ),
    "store, wait, load": ((STORE, STORED, LOAD.replace("%r11]", "%r11+1024]"), WAIT), {}),
    "load, wait, write": ((LOAD, WAIT, FILL), {}),
    "two CTAs add": ((ADD, READ), TWO),
    "two stores in order": ((STORE, STORED, STORE, STORED), {}),
    "two warps store by one instruction, each its own, in two rounds": ((LEADERS, TWICE.format(EACH)), {}),
    "copies of no bytes": ((NO_BYTES, *(line.replace("256", "%r31") for line in (LOAD, WAIT, STORE, ADD, STORED))), {}),
    "two loads, each with an mbarrier, a wait for both": ((LOADS, WAIT, LAST, FILL), {}),
    "a cp.async, its wait, a write": (
        ("cp.async.ca.shared.global [%r12], [%rd4], 4; cp.async.wait_all;\n", "st.global.u32 [%rd4], %r1;\n"),
        {},
    ),
}
WRONG = {
    "write, barrier, load": ((FILL, BARRIER, LOAD, WAIT), {}, "missing-proxy-fence"),
    "a fence of shared memory": (
        (FILL, BARRIER, "fence.proxy.async.shared::cta;\n", LOAD, WAIT),
        {},
        "missing-proxy-fence",
    ),
    "a fence of shared memory, where others are of all": (
        (FENCE, FILL, BARRIER, "fence.proxy.async.shared::cta;\n", LOAD, WAIT),
        {},
        "missing-proxy-fence",
    ),
    "a fence of global memory before the write": (
        ("fence.proxy.async.global;\n", FILL, BARRIER, LOAD, WAIT),
        {},
        "missing-proxy-fence",
    ),
    "a thread's own without a fence": (("@%p1 st.global.u32 [%rd1], 1;\n", LOAD, WAIT), {}, "missing-proxy-fence"),
    "write, fence, load without a barrier": ((FILL, FENCE, LOAD, WAIT), {}, "unordered-read"),
    "another CTA's, and no fence": (
        (SECOND, FILL, BARRIER, SEND, GET, only(1, LOAD), "@%p2 bra END;\n", WAIT, "END:\n"),
        TWO,
        "missing-proxy-fence",
    ),
    "another CTA's, with a fence there": (
        (SECOND, FILL, FENCE, BARRIER, SEND, GET, only(1, LOAD), "@%p2 bra END;\n", WAIT, "END:\n"),
        TWO,
        "missing-proxy-fence",
    ),
    "store, wait for reads, read": ((STORE, READ, BARRIER, TAKE), {}, "unordered-read"),
    "store, wait, read without a barrier": ((STORE, STORED, TAKE), {}, "unordered-read"),
    "store, wait for reads, read in another CTA": (
        (only(0, STORE), READ, SEND, GET, BARRIER, "@!%p2 ld.global.u32 %r9, [%rd4];\n"),
        TWO,
        "unordered-read",
    ),
    "store, load": ((STORE, READ, LOAD.replace("%r11]", "%r11+1024]"), WAIT), {}, "unordered-read"),
    "load, write": ((LOAD, FILL, WAIT), {}, "unordered-write"),
    "two CTAs store": ((STORE, READ), TWO, "unordered-write"),
    "two warps store to one place by one instruction": ((LEADERS, EACH.replace("%rd9", "%rd1")), {}, "unordered-write"),
    "stores in two rounds, and waits for reads": (
        (LEADERS, TWICE.format(EACH.replace("group 0", "group.read 0"))),
        {},
        "unordered-write",
    ),
    "two loads, each with an mbarrier, a wait for the last": ((LOADS, LAST, FILL, WAIT), {}, "unordered-write"),
    "one CTA adds, one reads": (
        (SECOND, only(0, ADD), READ, "@!%p2 ld.global.u32 %r9, [%rd4];\n"),
        TWO,
        "unordered-read",
    ),
    "a cp.async, a write": (
        ("cp.async.ca.shared.global [%r12], [%rd4], 4;\n", "st.global.u32 [%rd4], %r1; cp.async.wait_all;\n"),
        {},
        "unordered-write",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_reported(name):
    lines, options = RIGHT[name]
    assert hazards_of(*lines, **options) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name):
    lines, options, kind = WRONG[name]
    assert kind in hazards_of(*lines, **options)


# TMA, with a tensor map that the kernel changes.

MAP = """ld.param.u64 %rd5, [p2]; add.u32 %r30, %r10, 3072;
fence.proxy.tensormap::generic.acquire.sys [%rd5], 128;
@%p1 st.shared.u32 [%r30], 0;
"""
COPY_TO_SHARED = "".join(
    f"@%p1 ld.global.u32 %r43, [%rd5+{n}]; @%p1 st.shared.u32 [%r30+{n}], %r43;\n" for n in range(0, 128, 4)
)
TOGETHER = "bar.warp.sync 0xffffffff;\n"
REPLACE = "@%p1 tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r30], 0;\n" + TOGETHER
PUBLISH = """tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd5], [%r30], 128;
"""
IN_PLACE = "@%p1 tensormap.replace.tile.fill_mode.global.b1024.b32 [%rd5], 0;\n"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;\n"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;\n"
TMA = """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 256;
@%p1 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd5, {0}], [%r10];
"""
AGAIN = WAIT.replace("MORE", "TWO").replace(", 0;", ", 1;")


FILLED = """st.shared.u32 [%r12], %r1; st.shared.u32 [%r12+128], %r1; fence.proxy.async; bar.warp.sync 0xffffffff;
"""
UNACQUIRED = FILLED + "ld.param.u64 %rd5, [p2];\n"
PARAMETER = FILLED + "mov.b64 %rd5, p2; cvta.param.u64 %rd5, %rd5;\n"
CONSTANT = FILLED + "mov.b64 %rd5, held; cvta.const.u64 %rd5, %rd5;\n"
BY_LANE_1 = "setp.eq.u32 %p8, %r1, 1; @%p8 fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;\n"
SEND = """@%p1 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd5, {0}], [%r11];
@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;
"""


def run_of(body, as_array=True, *, cluster=1, box=(64,), module="", block=32):
    """Run a kernel whose third argument is a tensor map that the host wrote: an array, or a parameter."""
    run = Run((), None, sanitize=True)
    data, raw = aligned((1, 256), "u4").reshape(-1), np.zeros(256, np.uint8)
    where = raw[-raw.ctypes.data % 128 :][:128]
    where[:] = np.frombuffer(tensor_map(data, box), np.uint8)
    run.adopt(data)
    given = where if as_array else where.tobytes()
    if module:
        module = module.format(", ".join(map(str, where.tolist())))
    options = {"grid": cluster, "cluster": cluster, "smem_bytes": 4096, "module": module, "block": block}
    launch(body, data, np.zeros(64, np.uint32), given, run=run, **options)
    return run


@pytest.mark.parametrize(
    "use",
    [
        TMA + WAIT,
        SEND,
        SEND.replace(
            "cp.async.bulk.tensor.1d.global.shared::cta", "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add"
        ),
        "@%p1 cp.async.bulk.prefetch.tensor.1d.L2.global [%rd5, {0}];\n",
    ],
    ids=["load", "store", "reduce", "prefetch"],
)
def test_a_tensor_map_of_the_host_is_acquired_by_each_cta_unless_it_is_a_parameter_or_a_constant(use):
    def kinds(body, *how, **options):
        return [hazard.kind for hazard in run_of(body, *how, **options).hazards]

    assert kinds(START + UNACQUIRED + use) == ["missing-tensormap-fence"]
    assert kinds(START + UNACQUIRED + use + ACQUIRE) == ["missing-tensormap-fence"]
    assert kinds(START + UNACQUIRED + ACQUIRE + use) == []
    assert kinds(START + UNACQUIRED + ACQUIRE.replace(".gpu", ".cta") + use) == ["missing-tensormap-fence"]
    assert kinds(START + UNACQUIRED + BY_LANE_1 + use) == ["missing-tensormap-fence"]
    assert kinds(START + UNACQUIRED + BY_LANE_1 + TOGETHER + use) == []
    assert kinds(START + PARAMETER + use, False) == []
    assert kinds(START + CONSTANT + use, module=".const .align 64 .b8 held[128] = {{{}}};") == []


def test_a_fence_in_another_cta_of_the_cluster_shows_a_tensor_map_to_that_cta_alone():
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
    first, each = "setp.eq.u32 %p8, %r2, 0; @%p8 " + ACQUIRE, ACQUIRE
    for fence, kinds in ((first, ["missing-tensormap-fence"]), (each, [])):
        run = run_of(START + UNACQUIRED + fence + meet + TMA + WAIT + meet, cluster=2)
        assert [hazard.kind for hazard in run.hazards] == kinds


def test_the_certificate_says_that_a_tensor_map_of_the_host_is_acquired_with_the_scope_gpu():
    for scope, assumed in ((".gpu", True), (".sys", False)):
        (certificate,) = run_of(START + UNACQUIRED + ACQUIRE.replace(".gpu", scope) + TMA + WAIT).certificates
        assert certificate.is_certified
        assert any("tensor map" in what for what in certificate.assumptions) == assumed


def map_hazards_of(*lines, policy=None, grid=1):
    """Run a kernel of one warp whose third argument is a tensor map in global memory."""
    run = Run((), policy and policy_named(policy), sanitize=True)
    data, raw = aligned((1, 256), "u4").reshape(-1), np.zeros(256, np.uint8)
    where = raw[-raw.ctypes.data % 128 :][:128]
    where[:] = np.frombuffer(tensor_map(data, (64,)), np.uint8)
    run.adopt(data)
    launch("".join((START, MAP, *lines)), data, np.zeros(64, np.uint32), where, run=run, smem_bytes=4096, grid=grid)
    return [hazard.kind for hazard in run.hazards]


@pytest.mark.parametrize(
    "lines",
    [
        (TMA, WAIT),
        (COPY_TO_SHARED, REPLACE, PUBLISH, ACQUIRE, TMA, WAIT),
        (IN_PLACE, RELEASE, ACQUIRE, TMA, WAIT),
        (COPY_TO_SHARED, REPLACE, PUBLISH, ACQUIRE, TMA, WAIT, REPLACE, PUBLISH, ACQUIRE, TMA, AGAIN),
    ],
    ids=range(4),
)
def test_a_tensor_map_that_is_shown_to_copies(lines):
    assert map_hazards_of(*lines) == []


@pytest.mark.parametrize(
    "lines",
    [
        (COPY_TO_SHARED, REPLACE, PUBLISH, TMA, WAIT),
        (COPY_TO_SHARED, REPLACE, ACQUIRE, PUBLISH, TMA, WAIT),
        (IN_PLACE, ACQUIRE, TMA, WAIT),
        (IN_PLACE, RELEASE, TMA, WAIT),
        (RELEASE, IN_PLACE, ACQUIRE, TMA, WAIT),
        (COPY_TO_SHARED, REPLACE, PUBLISH, ACQUIRE, TMA, WAIT, REPLACE, PUBLISH, TMA, AGAIN),
    ],
    ids=range(6),
)
def test_a_tensor_map_that_is_not(lines):
    assert "missing-tensormap-fence" in map_hazards_of(*lines)


@pytest.mark.parametrize("offset", [0, 64, 124])
@pytest.mark.parametrize(("lane", "kinds"), [(2, []), (1, ["missing-tensormap-fence"])])
def test_the_lane_that_stores_a_word_of_a_map_releases_it(offset, lane, kinds):
    """Lane 2; in the same instruction lane 1 stores elsewhere."""
    store = f"""ld.param.u64 %rd20, [p1]; setp.eq.u32 %p8, %r1, 2; @%p8 add.u64 %rd20, %rd5, {offset};
    setp.eq.u32 %p9, %r1, 1; or.pred %p9, %p8, %p9; @%p9 ld.global.u32 %r43, [%rd20]; @%p9 st.global.u32 [%rd20], %r43;
    setp.eq.u32 %p9, %r1, {lane}; @%p9 {RELEASE}"""
    assert map_hazards_of(store, TOGETHER, ACQUIRE, TMA, WAIT) == kinds


THROUGH = "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group.read 0;\n" + TOGETHER
SEND_BOX = """st.shared.u32 [%r12+128], %r1; fence.proxy.async.shared::cta; bar.warp.sync 0xffffffff;
@%p1 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd5, {0}], [%r11];
@%p1 cp.async.bulk.commit_group;
"""
BY_ANOTHER = IN_PLACE.replace("@%p1", "@%p8")
FRESH = "setp.eq.u32 %p8, %r1, 1;\n"
TWO_LANES = """setp.lt.u32 %p8, %r1, 2; shl.b32 %r44, %r1, 8; add.u32 %r44, %r44, %r11;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 512;
@%p8 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r44], [%rd5, {0}], [%r10];
"""
IN_USE = {
    "a load, changed in place": (TMA, IN_PLACE, WAIT),
    "a load, another one published": (COPY_TO_SHARED, REPLACE, TMA, PUBLISH, WAIT),
    "a load, changed by a lane that did not wait": (FRESH, TMA, "@!%p1 bra OFF;\n" + WAIT, "OFF:\n" + BY_ANOTHER),
    "a load, its group is not closed": (TMA, THROUGH.partition(";")[2], IN_PLACE, WAIT),
    "a load, changed by a lane that did not meet who waited": (
        FRESH,
        TMA,
        THROUGH.replace(TOGETHER, ""),
        BY_ANOTHER,
        WAIT,
    ),
    "a store, changed in place": (SEND_BOX, IN_PLACE, READ),
    "two loads, and a wait for the first": (TMA, WAIT, TOGETHER, TMA, IN_PLACE, AGAIN),
    "loads of two lanes, changed by the first": (TWO_LANES, IN_PLACE, WAIT),
}
NOT_IN_USE = {
    "a load, a wait": (TMA, WAIT, IN_PLACE),
    "a load, a wait, another lane": (FRESH, TMA, WAIT, BY_ANOTHER),
    "a load, its group is over": (TMA, THROUGH, IN_PLACE, WAIT),
    "a load, its group is over, another one published": (COPY_TO_SHARED, REPLACE, TMA, THROUGH, PUBLISH, WAIT),
    "a load, its group is over, another lane": (FRESH, TMA, THROUGH, BY_ANOTHER, WAIT),
    "a store that has been read": (SEND_BOX, READ, IN_PLACE),
    "loads of two lanes, a wait": (TWO_LANES, WAIT, IN_PLACE),
}


@pytest.mark.parametrize("policy", [None, "late"])
@pytest.mark.parametrize("name", IN_USE)
def test_a_tensor_map_that_copies_may_still_read_is_not_to_be_changed(name, policy):
    assert map_hazards_of(*IN_USE[name], policy=policy) == ["unordered-write"]


@pytest.mark.parametrize(("name", "kinds"), [("a load, changed in place", ["unordered-write"]), ("a load, a wait", [])])
def test_a_tensor_map_of_another_cta_than_the_first(name, kinds):
    lines = ("@%p2 bra LEAVE;\n", *(IN_USE | NOT_IN_USE)[name], "LEAVE:\n")
    assert map_hazards_of(*lines, grid=2) == kinds


@pytest.mark.parametrize("policy", [None, "late"])
@pytest.mark.parametrize("name", NOT_IN_USE)
def test_a_tensor_map_that_copies_have_read_may_be_changed(name, policy):
    assert map_hazards_of(*NOT_IN_USE[name], policy=policy) == []


def test_a_tensor_map_behind_the_parameters_is_none_of_them():
    uses = TensorMapUses(None, None, None, None, None)
    uses.begin(SimpleNamespace(windows={"const": [], "param": [(1024, 1152)]}))
    for address, needs in ((896, True), (1024, False), (1151, False), (1152, True)):
        assert uses.needs_fence(SimpleNamespace(addresses=[[address]])) is needs


@pytest.mark.parametrize(
    "change",
    [REPLACE.replace(TOGETHER, ""), "@%p1 ld.shared.u32 %r43, [%r30]; @%p1 st.shared.u32 [%r30], %r43;\n"],
    ids=["replace", "store"],
)
def test_a_tensor_map_in_shared_memory_is_there_for_lanes_that_have_met_its_writer(change):
    rest = PUBLISH, ACQUIRE, TMA, WAIT
    assert map_hazards_of(COPY_TO_SHARED, TOGETHER, change, TOGETHER, *rest) == []
    assert map_hazards_of(COPY_TO_SHARED, TOGETHER, change, *rest) == ["unordered-read"]


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((COPY_TO_SHARED, REPLACE.splitlines()[0] + "\n", PUBLISH, ACQUIRE, TMA, WAIT), "unordered-read"),
        (
            ("mov.u32 %r43, %tid.x; mad.lo.u32 %r43, %r43, 4, %r30; st.shared.u32 [%r43], 0;\n", REPLACE),
            "unordered-write",
        ),
    ],
    ids=["copied by lanes that may not see the change", "changed where other lanes have written"],
)
def test_a_tensor_map_in_shared_memory_is_read_and_written_whole(lines, kind):
    assert kind in map_hazards_of(*lines)


# TMA stores of two warps by one instruction.

PARTS = """ld.param.u64 %rd5, [p2]; fence.proxy.tensormap::generic.acquire.sys [%rd5], 128;
st.shared.u32 [%r12+1024], %r1; fence.proxy.async; bar.sync 0;
shr.u32 %r5, %r1, 5; setp.eq.u32 %p4, %r5, 0; shl.b32 %r6, %r5, 7; add.u32 %r6, %r6, %r11; shl.b32 %r7, %r5, 5;
"""
SEND_PART = """cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd5, {%r7}], [%r6];
cp.async.bulk.commit_group;
"""
SENT = "cp.async.bulk.wait_group.read 0;\nbar.warp.sync 0xffffffff;\n"
REFILL = "st.shared.u32 [%r12], 3; fence.proxy.async; bar.warp.sync 0xffffffff;\n"


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((SEND_PART, SENT, REFILL), set()),
        ((SEND_PART, "@!%p4 " + SENT, REFILL), {"unordered-write", "in-flight-at-exit"}),
        ((SEND_PART, "@%p4 " + SENT, REFILL), {"unordered-write", "in-flight-at-exit"}),
        ((TWICE.format(SEND_PART + SENT.replace(".read", "") + REFILL),), set()),
        ((TWICE.format(SEND_PART + SENT + REFILL),), {"unordered-write"}),
        ((SEND_PART.replace("%r7", "0"), SENT), {"unordered-write"}),
        (("and.b32 %r8, %r1, 1; shl.b32 %r8, %r8, 7; add.u32 %r6, %r11, %r8;\n", SEND_PART, SENT), {"unordered-write"}),
    ],
    ids=[
        "each warp waits",
        "the first warp does not wait",
        "the second warp does not wait",
        "each waits, in two rounds",
        "each waits for reads, in two rounds",
        "two warps, one box",
        "lanes of a warp, one box from two places",
    ],
)
def test_each_warp_stores_and_waits_for_itself(lines, kinds):
    run = Run((), None, sanitize=True)
    data, raw = aligned((1, 256), "u4").reshape(-1), np.zeros(256, np.uint8)
    where = raw[-raw.ctypes.data % 128 :][:128]
    where[:] = np.frombuffer(tensor_map(data, (32,)), np.uint8)
    run.adopt(data)
    body = "".join((START, PARTS, *lines))
    launch(body, data, np.zeros(64, np.uint32), where, run=run, smem_bytes=4096, block=64)
    assert {hazard.kind for hazard in run.hazards} == kinds
