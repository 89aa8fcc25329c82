"""Looking inside: traces, shared memory as matrices, bank conflicts, breakpoints."""

import json

import numpy as np
import pytest

from cutepy.layouts import Layout
from cutepy.layouts.sm90 import SmemArray, SmemPlan
from cutepy.sim import Observer, Run
from tests.messages import pins, refuses
from tests.sim import opcode_runner

from .launching import kernel_call, launch, ptx_module

MATRIX = """
mov.u32 %r1, %tid.x;
mov.u32 %r0, smem;
shl.b32 %r2, %r1, {shift};
add.u32 %r2, %r2, %r0;
.loc 1 7 0
st.shared.u32 [%r2], %r1;
bar.sync 0;
.loc 1 9 0
ld.shared.u32 %r3, [%r2];
shl.b32 %r4, %r1, 2;
cvt.u64.u32 %rd2, %r4;
add.u64 %rd2, %rd0, %rd2;
.loc 1 11 0
st.global.u32 [%rd2], %r3;
"""


def round_trip(shift=2, **options):
    out = np.zeros(64, np.uint32)
    run = launch(MATRIX.format(shift=shift), [out], block=(64, 1, 1), smem=64 << shift, **options)
    np.testing.assert_array_equal(out, np.arange(64))
    return run


def test_shared_memory_through_a_layout():
    run = round_trip()
    np.testing.assert_array_equal(run.smem(dtype="uint32"), np.arange(64))
    expected = np.arange(64).reshape(8, 8)
    np.testing.assert_array_equal(run.smem((0, 0, 0), Layout((8, 8), (8, 1)), "uint32"), expected)
    np.testing.assert_array_equal(run.smem((0,), "(4,8):(8,1)", np.uint32, offset=128), expected[4:])
    # A row of 32 bytes swizzled by SW32: bit 7 of the address flips bit 4.
    swizzled = run.smem((0, 0, 0), "Sw<1,4,3> o smem_ptr[32b](unset) o (8,8):(8,1)", "uint32")
    np.testing.assert_array_equal(swizzled, np.arange(64)[np.arange(64) ^ (np.arange(64) >> 5 << 2)].reshape(8, 8))


def test_narrow_floats_are_widened():
    store = "mov.u32 %r0, smem; mov.u32 %r1, 0x38403f80; st.shared.u32 [%r0], %r1;"
    run = launch(store, smem=4)
    np.testing.assert_array_equal(run.smem(dtype="bfloat16")[:1], np.float32(1))
    np.testing.assert_array_equal(run.smem(dtype="float8_e4m3fn")[3:], np.float32(1))


def test_what_cannot_be_seen_is_said():
    run = round_trip()
    with refuses(ValueError):
        run.smem((0, 0, 0), "(16,8):(8,1)", "uint32")
    with refuses(ValueError):
        run.smem(dtype="uint32", offset=2)
    with refuses(IndexError):
        run.smem((1, 0, 0))
    with refuses(IndexError):
        run.smem(launch=1)
    for name in ("trace", "conflicts", "waits"):
        with refuses(RuntimeError):
            getattr(run, name)()


def test_shared_memory_by_the_names_of_a_plan():
    body = "mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r0, %r1, 4, %r0; st.shared.u32 [%r0], %r1;"
    run = launch(body, smem=256)
    plan = SmemPlan.of(first=SmemArray(5, 8), second=SmemArray(3, 32, alignment_bytes=16))
    np.testing.assert_array_equal(run.smem(layout=plan["second"], dtype="uint32"), [4, 5, 6])
    with refuses(ValueError):
        run.smem(name="second")
    run.plan = plan
    np.testing.assert_array_equal(run.smem(name="second", dtype="uint32"), [4, 5, 6])
    with refuses(ValueError):
        run.smem(name="second")
    with refuses(ValueError):
        run.smem(layout="4:1", name="first")
    with refuses(KeyError):
        run.smem(name="third")


def test_shared_memory_of_ctas_that_are_no_longer_resident():
    body = "mov.u32 %r0, smem; mov.u32 %r1, %ctaid.x; st.shared.u32 [%r0], %r1;"
    run = launch(body, grid=(64, 1, 1), smem=4)
    assert run.smem((63, 0, 0), dtype="uint32") == 63
    with refuses(LookupError):
        run.smem((0, 0, 0))
    run = launch(body, grid=(64, 1, 1), smem=4, inspect=True)
    assert [run.smem((n, 0, 0), dtype="uint32")[0] for n in (0, 31, 32, 63)] == [0, 31, 32, 63]


def test_shared_memory_while_a_launch_runs():
    """An observer sees what it holds now, and what earlier launches have left."""
    seen = []

    class Asks(Observer):
        def on_barrier(self, event):
            seen.append([int(run.smem(dtype="uint32", launch=n)[0]) for n in range(-1, len(run.launches))])

    run = Run([Asks()], None, inspect=True)
    for value in (5, 6, 7):
        body = f"mov.u32 %r0, smem; st.shared.u32 [%r0], {value}; bar.sync 0; st.shared.u32 [%r0], {value + 10};"
        run.launch(kernel_call(ptx_module(body, 0), block=(32, 1, 1), dynamic_smem_bytes=4))
    assert seen == [[5, 5], [6, 15, 6], [7, 15, 16, 7]]


@pytest.mark.parametrize(("shift", "wavefronts"), [(2, 2), (3, 4), (4, 8), (7, 64)])
def test_bank_conflicts(shift, wavefronts):
    run = round_trip(shift, inspect=True, grid=(3, 1, 1))
    store, load = sorted(run.conflicts(), key=lambda site: site.instruction.index)
    for site, line in ((store, 7), (load, 9)):
        assert (site.instruction.source.line, site.warps) == (line, 6)
        assert (site.wavefronts, site.fewest, site.conflicts) == (3 * wavefronts, 6, 3 * wavefronts - 6)


@pytest.mark.parametrize(("pitch", "wavefronts"), [(16, 4), (32, 8), (128, 32), (144, 4)])
def test_bank_conflicts_of_ldmatrix(pitch, wavefronts):
    body = f"""
    mov.u32 %r1, %tid.x; mov.u32 %r0, smem;
    mad.lo.u32 %r2, %r1, {pitch}, %r0;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r3, %r4, %r5, %r6}}, [%r2];
    """
    (site,) = launch(body, smem=32 * pitch, inspect=True).conflicts()
    assert (site.wavefronts, site.fewest) == (wavefronts, 4)


def test_uncoalesced_accesses_come_first():
    body = """
    ld.param.u64 %rd1, [p0]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd1; ld.global.u32 %r2, [%rd2];
    mul.wide.u32 %rd3, %r1, 64; add.s64 %rd3, %rd3, %rd1; st.global.u32 [%rd3], %r2;
    """
    run = Run((), None, inspect=True)
    opcode_runner.launch(body, np.zeros(1024, np.uint32), run=run)
    store, load = run.uncoalesced()
    assert (store.sectors, store.fewest, store.excess, load.sectors, load.fewest) == (32, 4, 28, 4, 4)


WAITING = """
mov.u32 %r1, %tid.x;
setp.lt.u32 %p0, %r1, 32;
@%p0 bra FIRST;
.loc 1 20 0
bar.sync 1, 64;
bra END;
FIRST:
.loc 1 30 0
bar.sync 1, 64;
END:
"""


def test_waits_by_site():
    run = launch(WAITING, block=(64, 1, 1), inspect=True)
    counts = {site.instruction.source.line: (site.warps, site.waited) for site in run.waits()}
    assert sorted(counts) == [20, 30]
    assert all(passed == 1 for passed, _ in counts.values())
    assert sorted(waited for _, waited in counts.values()) == [0, 1]


def test_a_site_that_waits_tells_where_and_how_often_of_each_launch():
    run = launch(WAITING, block=(64, 1, 1), inspect=True)
    run.launch(kernel_call(ptx_module(WAITING, 0), block=(64, 1, 1)))
    told = sorted((site.launch, *str(site).split(": ")) for site in run.waits())
    assert [one[:3] for one in told] == [
        (number, f"kernel.py:{line}", "bar.sync") for number in (0, 1) for line in (20, 30)
    ]
    for number in (0, 1):
        texts = [text for launch, *_, text in told if launch == number]
        assert sorted(texts) == [f"passed 1 times by a warp, {waited} after waiting" for waited in (0, 1)]


def test_a_trace_has_the_waits_and_stores_of_each_warp():
    run = launch(WAITING, block=(64, 1, 1), inspect=True)
    trace = json.loads(json.dumps(run.trace()))
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {e["tid"] for e in spans} == {0, 1}
    waits = [e for e in spans if e["name"] == "sync bar 1"]
    assert sorted(e["dur"] > 1 for e in waits) == [False, True]
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert {"warp 0", "warp 1", "k (0, 0, 0)"} <= names
    stores = [e for e in round_trip(inspect=True).trace()["traceEvents"] if e.get("cat") == "store"]
    assert [(e["tid"], e["args"]["line"]) for e in stores] == [
        (0, "kernel.py:7"),
        (1, "kernel.py:7"),
        (0, "kernel.py:11"),
        (1, "kernel.py:11"),
    ]


class Lines(Observer):
    """Keep the opcode and line of every instruction, and registers before one."""

    def __init__(self):
        self.opcodes, self.loaded = [], None

    def on_instruction(self, step):
        self.opcodes.append(step.instruction.parts[0])
        if step.instruction.parts[:2] == ("st", "global"):
            self.loaded = step.registers.get("%r3")


def test_every_instruction_is_seen_once():
    observer = Lines()
    round_trip(observers=[observer])
    expected = "ld mov mov shl add st bar ld shl cvt add st ret".split()
    assert observer.opcodes == expected
    np.testing.assert_array_equal(observer.loaded, np.arange(64)[None])


def test_steps_through_branches_guards_and_carries():
    body = """
    mov.u32 %r1, %tid.x; mov.u32 %r2, 0xffffffff; mov.u32 %r5, 1;
    add.cc.u32 %r3, %r1, %r2;
    addc.u32 %r4, 0, 0;
    setp.lt.u32 %p0, %r1, 8;
    shl.b32 %r6, %r1, 2; cvt.u64.u32 %rd2, %r6; add.u64 %rd2, %rd0, %rd2;
    @%p0 bra SKIP;
    add.u32 %r4, %r4, 10;
    SKIP:
    @!%p0 st.global.u32 [%rd2], %r4;
    """
    plain, stepped = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    observer = Lines()
    launch(body, [plain])
    launch(body, [stepped], observers=[observer])
    np.testing.assert_array_equal(plain, np.where(np.arange(32) < 8, 0, 11))
    np.testing.assert_array_equal(plain, stepped)
    assert observer.opcodes.count("st") == 1
    assert observer.opcodes.count("addc") == 1


def test_a_breakpoint_names_a_line():
    from cutepy.sim import Run

    run = Run([], None)
    with refuses(ValueError):
        run.breakpoint("here", print)


def _many(monkeypatch, launches):
    monkeypatch.setattr("cutepy.sim.run._KEPT_SHARED_BYTES", 4096)
    monkeypatch.setattr("cutepy.sim.inspect.tracing.KEPT_EVENTS", 8)
    run = Run([], None, inspect=True)
    for value in range(launches):
        body = f"mov.u32 %r0, smem; st.shared.u32 [%r0], {value}; bar.sync 0;"
        run.launch(kernel_call(ptx_module(body, 0), block=(32, 1, 1), dynamic_smem_bytes=4))
    return run


def test_the_record_of_a_long_run_is_bounded_and_that_is_told_once(monkeypatch):
    with pytest.warns(RuntimeWarning) as told:
        run = _many(monkeypatch, 20)
    assert len(told) == 1
    pins(str(told[0].message))
    assert len(run.launches) == 20
    assert sum(shared.size_bytes for _, shared in run._shared) <= 4096
    assert run.smem(dtype="uint32")[0] == 19
    assert len(run.trace(launch=-1)["traceEvents"]) > 2
    with refuses(LookupError):
        run.smem(launch=0)
    with refuses(LookupError):
        run.trace(launch=0)
    assert sum(map(len, run._recorder._events)) <= 16


def test_the_record_of_a_short_run_is_whole(monkeypatch):
    run = _many(monkeypatch, 2)  # warnings are errors
    assert [run.smem(dtype="uint32", launch=n)[0] for n in range(2)] == [0, 1]
