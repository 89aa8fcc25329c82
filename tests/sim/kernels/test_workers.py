"""A launch that is spread over processes does what it does in one."""

import contextlib
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cutepy.frontends import simulate
from cutepy.sim import CompletionPolicy, DeadlockError, MemoryAccessError, Observer
from cutepy.sim.parallel import blas, workers
from tests.messages import refuses

from .launching import launch

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only"),
]

CTAS = 300

# %r0: this thread's index in the grid; %rd10: address of its element of the first parameter; %r4, %r2: CTA, thread.
INDEX = """
mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r4, %ctaid.x; mad.lo.s32 %r0, %r4, %r1, %r2;
mul.wide.u32 %rd9, %r0, 4; add.s64 %rd10, %rd0, %rd9;
"""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Fork at the first opportunity."""
    monkeypatch.setattr(workers, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(workers, "_LONG_WAVE_S", 0.0)
    yield
    assert multiprocessing.active_children() == []


def aligned(values):
    """Copy an array to an address that is a multiple of 64, so that it has the same sectors each time."""
    block = np.zeros(values.nbytes + 64, np.uint8)
    array = block[-block.ctypes.data % 64 :][: values.nbytes].view(values.dtype)
    array[:] = values
    return array


def both(body, make, **options):
    """Run in one process and in three; returns both runs, after comparing what they leave."""
    runs, kept = [], []
    for processes in (1, 3):
        arrays = [aligned(array) for array in make()]
        runs.append(launch(INDEX + body, arrays, grid=(CTAS, 1, 1), processes=processes, **options))
        kept.append(arrays)
    for one, other in zip(*kept, strict=True):
        np.testing.assert_array_equal(one, other)
    alone, spread = (run.launches[0] for run in runs)
    assert alone.processes == 1
    assert (alone.stats, alone.instructions, alone.printf) == (spread.stats, spread.instructions, spread.printf)
    return runs


def test_values_counts_and_shared_memory_are_those_of_one_process():
    body = """
    st.shared.u32 [smem], %r4;
    add.s64 %rd11, %rd1, %rd9; ld.global.u32 %r5, [%rd10];
    setp.gt.u32 %p1, %r5, 4000; @%p1 bra DONE;
    add.u32 %r5, %r5, %r4; st.global.u32 [%rd11], %r5;
    DONE: bar.sync 0;
    """
    one, three = both(body, lambda: (np.arange(CTAS * 32, dtype=np.uint32), np.zeros(CTAS * 32, np.uint32)), smem=1024)
    assert three.launches[0].processes == 3
    assert one.stats["instructions"] > 0
    for run in (one, three):
        assert run.smem((CTAS - 1, 0, 0), dtype="uint32")[0] == CTAS - 1
        with refuses(LookupError):
            run.smem((0, 0, 0))


def test_an_update_in_place_is_spread():
    body = "ld.global.u32 %r5, [%rd10]; add.u32 %r5, %r5, 7; st.global.u32 [%rd10], %r5;"
    _, three = both(body, lambda: (np.arange(CTAS * 32, dtype=np.uint32),))
    assert three.launches[0].processes == 3


def shared_mapping(path, kind):
    """Return an array of zeros whose memory forks of this process share."""
    if kind == "torch":
        torch = pytest.importorskip("torch")
        return torch.zeros(CTAS * 32, dtype=torch.int32).share_memory_().numpy().view(np.uint32)
    if kind == "memmap":
        return np.memmap(path / "data", np.uint32, "w+", shape=(CTAS * 32,))
    return np.frombuffer(mmap.mmap(-1, CTAS * 32 * 4), np.uint32)


@pytest.mark.parametrize("kind", ["anonymous", "memmap", "torch"])
def test_memory_that_forks_share_is_updated_once(tmp_path, kind):
    """A worker's writes to it could not be undone, if what it did is to be run again."""
    body = """
    setp.ne.u32 %p1, %r4, 290; @%p1 bra OVER; ld.global.u32 %r6, [%rd0 + 7680]; OVER:
    ld.global.u32 %r5, [%rd10]; add.u32 %r5, %r5, 1; st.global.u32 [%rd10], %r5;
    """
    array = shared_mapping(tmp_path, kind)
    run = launch(INDEX + body, (array,), grid=(CTAS, 1, 1), processes=3)
    assert np.unique(array).tolist() == [1]
    assert run.launches[0].processes == 1


def test_memory_that_cannot_be_written_may_be_shared(tmp_path):
    np.arange(CTAS * 32, dtype=np.uint32).tofile(tmp_path / "data")
    source, out = np.memmap(tmp_path / "data", np.uint32, "r"), np.zeros(CTAS * 32, np.uint32)
    body = "add.s64 %rd11, %rd1, %rd9; ld.global.u32 %r5, [%rd10]; st.global.u32 [%rd11], %r5;"
    run = launch(INDEX + body, (source, out), grid=(CTAS, 1, 1), processes=3)
    np.testing.assert_array_equal(out, source)
    assert run.launches[0].processes == 3


def test_of_writes_to_one_place_the_last_stays():
    body = "st.global.u32 [%rd0], %r4; add.u32 %r5, %r4, 1; st.global.u8 [%rd10], %r5;"
    _, three = both(body, lambda: (np.zeros(CTAS * 32, np.uint32),))
    assert three.launches[0].processes == 3


def test_output_is_in_order():
    body = """
    setp.ne.u32 %p1, %r2, 0; @%p1 bra DONE;
    { .param .b64 p0; .param .b64 p1; .param .b32 back;
    .local .align 8 .b8 depot[8]; .reg .b64 %a<4>;
    mov.u64 %a0, depot; cvta.local.u64 %a1, %a0; st.local.u32 [%a0], %r4;
    st.param.b64 [p0], %rd0; st.param.b64 [p1], %a1;
    call.uni (back), vprintf, (p0, p1); }
    DONE:
    """
    _, three = both(body, lambda: (np.frombuffer(b"cta %d\n\0", np.uint8).copy(),))
    assert three.launches[0].processes == 3
    assert three.printf.split() == [word for n in range(CTAS) for word in ("cta", str(n))]


# Each CTA goes on from what the one 60 before has stored: from another wave, in the order of waves.
CHAIN = """
setp.lt.u32 %p1, %r4, 60; @%p1 bra FIRST;
ld.global.u32 %r5, [%rd10 + -7680]; add.u32 %r5, %r5, 1; st.global.u32 [%rd10], %r5; bra DONE;
FIRST: st.global.u32 [%rd10], 1;
DONE:
"""


def test_what_depends_on_earlier_waves_is_run_again_in_one_process():
    array = np.zeros(CTAS * 32, np.uint32)
    run = launch(INDEX + CHAIN, (array,), grid=(CTAS, 1, 1), processes=3)
    assert run.launches[0].processes == 1
    np.testing.assert_array_equal(array, np.repeat(np.arange(CTAS) // 60 + 1, 32))


@pytest.mark.parametrize(
    "body",
    [
        "red.global.add.u32 [%rd0], 1;",
        "ld.acquire.gpu.global.u32 %r5, [%rd0];",
        "mov.u64 %rd5, %clock64; st.global.u32 [%rd10], %r4;",
    ],
)
def test_what_sees_the_order_of_ctas_is_not_spread(body):
    _, three = both(body, lambda: (np.zeros(CTAS * 32, np.uint32),))
    assert three.launches[0].processes == 1


@pytest.mark.parametrize("options", [{"observers": [Observer()]}, {"policy": CompletionPolicy()}, {"inspect": True}])
def test_what_is_watched_is_not_spread(options):
    body = "st.global.u32 [%rd10], %r4;"
    run = launch(INDEX + body, (np.zeros(CTAS * 32, np.uint32),), grid=(CTAS, 1, 1), processes=3, **options)
    assert run.launches[0].processes == 1


@pytest.mark.parametrize("bad", [0, 130, CTAS - 1])
def test_an_error_is_that_of_one_process_and_leaves_memory_so(bad):
    body = f"mov.b64 %rd11, 8; setp.eq.u32 %p1, %r4, {bad}; @%p1 st.global.u32 [%rd11], %r4;"
    body += "st.global.u32 [%rd10], %r4;"
    left, said = [], []
    for processes in (1, 3):
        array = np.full(CTAS * 32, 77, np.uint32)
        with refuses(MemoryAccessError) as caught:
            launch(INDEX + body, (array,), grid=(CTAS, 1, 1), processes=processes)
        left.append(array)
        said.append(str(caught.value).split(": ")[0])
    assert said[0] == said[1]
    np.testing.assert_array_equal(*left)


def test_a_deadlock_is_reported_as_by_one_process():
    body = """
    setp.ne.u32 %p1, %r4, 280; @%p1 bra DONE;
    mbarrier.init.shared.b64 [smem], 64;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [smem], 0; @!%p2 bra WAIT;
    DONE: st.global.u32 [%rd10], %r4;
    """
    said = []
    for processes in (1, 3):
        with pytest.raises(DeadlockError) as caught:
            launch(INDEX + body, (np.zeros(CTAS * 32, np.uint32),), grid=(CTAS, 1, 1), smem=64, processes=processes)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "(280, 0, 0)" in said[0]


def test_a_worker_that_dies_changes_nothing(monkeypatch):
    monkeypatch.setattr(workers.Team, "_report", lambda *_: os._exit(1))
    array = np.zeros(CTAS * 32, np.uint32)
    run = launch(INDEX + "st.global.u32 [%rd10], %r0;", (array,), grid=(CTAS, 1, 1), processes=3)
    assert run.launches[0].processes == 1
    np.testing.assert_array_equal(array, np.arange(CTAS * 32))


def test_of_workers_of_which_one_dies_nothing_is_counted(monkeypatch):
    report = workers.Team._report

    def dying(team, first, end):
        if end < len(team._waves):
            time.sleep(0.2)  # until the other has reported
            os._exit(1)
        return report(team, first, end)

    body = "st.global.u32 [%rd10], %r0;"
    alone = launch(INDEX + body, (np.zeros(CTAS * 32, np.uint32),), grid=(CTAS, 1, 1), processes=1)
    monkeypatch.setattr(workers.Team, "_report", dying)
    run = launch(INDEX + body, (np.zeros(CTAS * 32, np.uint32),), grid=(CTAS, 1, 1), processes=3)
    assert run.launches[0].processes == 1
    assert run.instructions == alone.instructions


def test_workers_leave_ctrl_c_to_the_process_that_launched(monkeypatch):
    """A terminal sends it to all: once they are at work, they ignore it, and finish."""
    fork = workers.Team._fork

    def forking(team, count):
        fork(team, count)
        deadline = time.monotonic() + 5
        for process in team._workers.values():
            while not _ignores(process.pid, signal.SIGINT) and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGINT)

    monkeypatch.setattr(workers.Team, "_fork", forking)
    _, three = both("st.global.u32 [%rd10], %r4;", lambda: (np.zeros(CTAS * 32, np.uint32),))
    assert three.launches[0].processes == 3


def _ignores(pid, number):
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored, 16) >> number - 1 & 1)


def test_what_a_worker_reads_of_this_process_is_seen():
    """CTA 0 stores what those of later waves load, and no others store what any loads."""
    body = """
    add.s64 %rd11, %rd1, %rd9; ld.global.u32 %r5, [%rd0]; st.global.u32 [%rd11], %r5;
    setp.ne.u32 %p1, %r4, 0; @%p1 bra DONE; st.global.u32 [%rd0], 7; DONE:
    """
    _, three = both(body, lambda: (np.zeros(32, np.uint32), np.zeros(CTAS * 32, np.uint32)))
    assert three.launches[0].processes == 1


def test_where_no_process_can_be_forked_there_is_one(monkeypatch):
    def refuse(process):
        raise BlockingIOError

    monkeypatch.setattr(multiprocessing.get_context("fork").Process, "start", refuse)
    array = np.zeros(CTAS * 32, np.uint32)
    run = launch(INDEX + "st.global.u32 [%rd10], %r0;", (array,), grid=(CTAS, 1, 1), processes=3)
    assert run.launches[0].processes == 1
    np.testing.assert_array_equal(array, np.arange(CTAS * 32))


def test_another_thread_can_launch():
    array = np.zeros(CTAS * 32, np.uint32)
    runs = []

    def work():
        runs.append(launch(INDEX + "st.global.u32 [%rd10], %r0;", (array,), grid=(CTAS, 1, 1), processes=3))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert runs[0].launches[0].processes == 3
    np.testing.assert_array_equal(array, np.arange(CTAS * 32))


PRODUCT = (
    "{ .reg .f32 %z<4>; .reg .b32 %y<4>; mov.b32 %y0, 0; mov.b32 %y1, 0; mov.b32 %y2, 0; mov.b32 %y3, 0; "
    "mov.b32 %z0, 0; mov.b32 %z1, 0; mov.b32 %z2, 0; mov.b32 %z3, 0; "
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%z0,%z1,%z2,%z3}, {%y0,%y1,%y2,%y3}, {%y0,%y1}, "
    "{%z0,%z1,%z2,%z3}; }"
)


@pytest.mark.parametrize(("more", "waves"), [("", 3), (PRODUCT, 1)], ids=["no tiles", "a product"])
def test_workers_are_forked_once_the_second_wave_may_have_compiled(monkeypatch, more, waves):
    """Or at once, where instructions on tiles take the time."""
    begun = []
    fork = workers.Team._fork
    monkeypatch.setattr(workers, "_LONG_WAVE_S", 30.0)
    monkeypatch.setattr(workers, "_POLL_S", 0.0)
    monkeypatch.setattr(workers.Team, "_fork", lambda team, count: (begun.append(team._next), fork(team, count)))
    body = f"mov.u32 %r9, smem; {more} st.global.u32 [%rd10], %r4;"
    both(body, lambda: (np.zeros(CTAS * 32, np.uint32),), smem=64)
    assert begun == [waves]


def test_a_short_launch_is_not_spread(monkeypatch):
    monkeypatch.setattr(workers, "_PATIENCE_S", 30.0)
    run = launch(INDEX + "st.global.u32 [%rd10], %r0;", (np.zeros(CTAS * 32, np.uint32),), grid=(CTAS, 1, 1))
    assert run.launches[0].processes == 1


def test_processes_must_be_positive():
    with refuses(ValueError), simulate(processes=0):
        pass


def test_products_have_one_thread_meanwhile_and_what_they_had_afterwards():
    class Looking(Observer):
        def on_access(self, access):
            seen.append([get() for get, _ in blas._openblas()])

    seen = []
    before = [get() for get, _ in blas._openblas()]
    if not before:
        pytest.skip("numpy has another BLAS")
    for _, put in blas._openblas():
        put(2)
    try:
        launch(INDEX + "st.global.u32 [%rd10], %r0;", (np.zeros(32, np.uint32),), observers=[Looking()])
        assert [get() for get, _ in blas._openblas()] == [2] * len(before)
    finally:
        for (_, put), number in zip(blas._openblas(), before, strict=True):
            put(number)
    assert seen == [[1] * len(before)]


def test_products_get_their_threads_back_when_the_last_of_two_contexts_ends():
    before = [get() for get, _ in blas._openblas()]
    first, second = blas.one_thread(), blas.one_thread()
    for _, put in blas._openblas():
        put(2)
    try:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert [get() for get, _ in blas._openblas()] == [1] * len(before)
        second.__exit__(None, None, None)
        assert [get() for get, _ in blas._openblas()] == [2] * len(before)
    finally:
        for (_, put), number in zip(blas._openblas(), before, strict=True):
            put(number)


@pytest.mark.dsl
@pytest.mark.parametrize("options", [{}, {"cluster_m": 2, "cluster_n": 2}], ids=["plain", "clusters"])
def test_a_gemm_is_equal_bit_for_bit(options):
    torch = pytest.importorskip("torch")
    pytest.importorskip("cutlass")
    from .test_gemm import compiled, multiply

    results, runs = [], []
    for processes in (1, 3):
        with simulate(processes=processes) as run:
            function, signature = compiled(out_dtype="float16", **options)
            got, expected = multiply(function, signature, 1000, 1304, 136)
        assert torch.equal(got, expected)
        results.append(got)
        runs.append(run)
    assert torch.equal(*results)
    assert [run.launches[0].processes for run in runs] == [1, 3]
    assert runs[0].stats == runs[1].stats


SCRIPT = """
import multiprocessing, sys
import numpy as np
from cutepy.sim.parallel import workers
from tests.sim.kernels.launching import launch
from tests.sim.kernels.test_workers import INDEX

workers._PATIENCE_S = workers._LONG_WAVE_S = 0.0
body = "LOOP: ld.global.u32 %r5, [%rd10]; add.u32 %r5, %r5, 1; st.global.u32 [%rd10], %r5; bra LOOP;"
fork = workers.Team._fork
def forking(team, count):
    fork(team, count)
    print(*(process.pid for process in team._workers.values()), flush=True)
workers.Team._fork = forking
try:
    launch(INDEX + body, (np.zeros(9600, np.uint32),), grid=(300, 1, 1), processes=3)
except KeyboardInterrupt:
    print("stopped", multiprocessing.active_children(), flush=True)
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_process_stays(tmp_path, ending):
    """After Ctrl-C, which a terminal sends to all of them, and after the launching process was killed."""
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(Path.cwd()), *sys.path))},
    )
    try:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.3)
        if ending is signal.SIGINT:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        output, errors = process.communicate(timeout=30)
        assert output == ("stopped []\n" if ending is signal.SIGINT else "")
        assert errors == ""
        deadline = time.monotonic() + 5
        while _alive(pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _alive(pids) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _alive(pids):
    """Return those that run still; who was orphaned may stay as a zombie, where nobody waits for it."""
    found = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            found += [pid] if state not in "ZX" else []
    return found


def test_ctrl_c_while_workers_are_waited_for_says_so(monkeypatch):
    from types import SimpleNamespace

    from cutepy.sim.machine.cluster_queue import ClusterQueue
    from cutepy.sim.parallel.workers import Team

    engine = SimpleNamespace(launch=SimpleNamespace(name="k"), schedule=SimpleNamespace(each_round=None))
    team = Team(lambda: engine, ClusterQueue([], 1), 2, lambda engine: None)
    team._waves, team._end = [None], 0  # workers have all of it
    team._busy.add(None)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(team, "_finish", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        team.run()
    assert stopped.value.__notes__ == [
        "k was stopped in other processes; simulate(processes=1) says where its lanes are"
    ]
