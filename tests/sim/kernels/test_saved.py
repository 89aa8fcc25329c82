"""Saved runs: what is read back is what happened, and a damaged or malicious file is refused."""

import io
import itertools
import json
import pickle
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import cutepy
from cutepy.frontends import simulate
from cutepy.layouts import parse
from cutepy.layouts.sm90 import make_gmma_desc
from cutepy.sim import Run, SavedRunError
from cutepy.sim.inspect import saving
from cutepy.sim.inspect.saved import load_run
from tests.messages import pins, refuses
from tests.sim.test_opcodes_tma import aligned, tensor_map

from .handover import handed_over
from .launching import kernel_call, launch, ptx_module


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    run = handed_over()
    return run, run.save(tmp_path_factory.mktemp("run") / "handover.cutepy")


def test_memory_at_each_step(saved):
    run, path = saved
    read = cutepy.load_run(path)
    (told,) = read.launches
    assert (told.name, told.grid, told.block, told.smem_bytes) == ("k", (2, 1, 1), (64, 1, 1), 2048)
    for cta in ((0, 0, 0), (1, 0, 0)):
        history = told.cta(cta)
        np.testing.assert_array_equal(history.smem(), run.smem(cta))
        np.testing.assert_array_equal(history.smem(len(history.events) - 1), run.smem(cta))
        stores = [n for n, event in enumerate(history.events) if "writes" in event]
        assert [history.instructions[history.events[n]["instruction"]]["line"] for n in stores] == [
            "kernel.py:20",
            "kernel.py:36",
        ]
        first, second = stores
        lanes = np.arange(32, dtype=np.uint32)
        assert not history.smem(first - 1).any()
        np.testing.assert_array_equal(history.smem(second - 1, dtype="uint32")[:32], lanes)
        assert not history.smem(second - 1, dtype="uint32")[64:96].any()
        np.testing.assert_array_equal(history.smem(second, "32:1", "uint32", 256), 2 * lanes)
        assert (history.writers(first - 1) == -1).all()
        writers = history.writers()
        assert (writers[:128] == first).all()
        assert (writers[256:384] == second).all()
        assert (writers[384:] == -1).all()


def test_who_waits_for_whom(saved):
    history = cutepy.load_run(saved[1]).launches[0].ctas[0]
    (wait,) = [wait for wait in history.waits if "mbarrier" in wait.barrier]
    assert wait.warps == (1,)
    releasing = history.events[wait.released_by]
    assert (releasing["phase"], releasing["warps"]) == ("do", [0])
    pins(releasing["name"])
    assert releasing["barrier"] == {"address": 1024, "phase": 1, "pending": 1, "expected": 1, "pending_bytes": 0}
    assert wait.begin < wait.released_by < wait.end
    assert history.barriers == {1024: "mbarrier 0x400"}


def test_an_arrival_at_another_cta_is_in_the_histories_of_both(tmp_path):
    body = """mov.u32 %r10, smem; mov.u32 %r2, %cluster_ctarank; setp.ne.u32 %p1, %r2, 0;
    mbarrier.init.shared.b64 [%r10], 1; barrier.cluster.arrive; barrier.cluster.wait;
    @!%p1 bra END; mapa.shared::cluster.u32 %r4, %r10, 0; mbarrier.arrive.shared::cluster.b64 _, [%r4];
    END: barrier.cluster.arrive; barrier.cluster.wait;"""
    run = launch(body, block=(1, 1, 1), grid=(2, 1, 1), cluster=(2, 1, 1), smem=64, inspect=True)
    read = cutepy.load_run(run.save(tmp_path / "peers.cutepy")).launches[0]
    (got,), (made,) = (
        [event for event in read.cta((cta, 0, 0)).events if event["name"].startswith("arrive mbarrier")]
        for cta in (0, 1)
    )
    assert got["barrier"]["phase"] == 1
    assert "CTA (1, 0, 0)" in got["from"]
    assert "barrier" not in made
    assert "from" not in made


def test_an_mma_and_a_copy_of_five_modes_are_kept(tmp_path):
    data = aligned((2, 2, 2, 2, 4), "f4")
    room = np.zeros(192, np.uint8)
    place = room[-room.ctypes.data % 64 :][:128]
    place[:] = np.frombuffer(tensor_map(data, (4, 2, 2, 2, 1)), np.uint8)
    word = int(make_gmma_desc(parse("((8,8),(8,2)):((8,64),(1,512))"), major="K", bits=16, start_address=1024))
    body = f"""mov.u32 %r10, smem; mov.u32 %r0, 0; mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0;
    mov.u32 %r3, 8; mov.u32 %r4, -1; mov.u32 %r5, 1; mov.u32 %r6, 1000;
    @!%p0 bra READY; mbarrier.init.shared.b64 [%r10], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 128;
    cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%r10+512], [%rd0, {{%r3, %r4, %r5, %r6, %r0}}], [%r10];
    READY: bar.sync 0; mov.b64 %rd4, {word}; setp.ne.u32 %p1, 0, 0; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd4, %rd4, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    run = Run((), None, inspect=True)
    for array in (place, data.base):
        run.register(array)
    run.launch(kernel_call(ptx_module(body, 1), [place], block=(128, 1, 1), dynamic_smem_bytes=4096))
    events = cutepy.load_run(run.save(tmp_path / "both.cutepy")).launches[0].ctas[0].events
    (boxes,) = [event["boxes"] for event in events if "boxes" in event]
    assert [(box["box"], box["coordinates"]) for box in boxes] == [([4, 2, 2, 2, 1], [8, -1, 1, 1000, 0])]
    (mma,) = [event["wgmma"] for event in events if "wgmma" in event]
    descriptor = f"{word:#018x}"
    assert mma == {"shape": [64, 8, 16], "types": ["f32", "f16", "f16"], "a": [descriptor], "b": [descriptor]}
    operations = {event["operation"] for event in events if "operation" in event}
    assert operations == set(range(len(operations)))


def test_a_wait_without_end_is_kept(tmp_path):
    body = "mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 32; @%p0 bra END; bar.sync 1, 64; END:"
    with pytest.raises(cutepy.sim.DeadlockError), simulate(inspect=True) as run:
        deadlocked(run, body)
    history = cutepy.load_run(run.save(tmp_path / "hang.cutepy")).launches[0].ctas[0]
    (wait,) = history.waits
    assert (wait.warps, wait.end, wait.released_by) == ((1,), None, None)
    pins(wait.barrier)


def deadlocked(run, body):
    run.launch(kernel_call(ptx_module(body, 0), block=(64, 1, 1), dynamic_smem_bytes=2048))


def test_equal_runs_give_equal_files(saved, tmp_path):
    again = handed_over()
    assert again.save(tmp_path / "again").read_bytes() == saved[1].read_bytes()


def test_what_is_saved_is_chosen(saved, tmp_path):
    run, _ = saved
    told = cutepy.load_run(run.save(tmp_path / "one.cutepy", ctas=[(1,)])).launches[0]
    assert [cta.cta for cta in told.ctas] == [(1, 0, 0)]
    with refuses(LookupError):
        told.cta((0, 0, 0))
    with refuses(IndexError):
        run.save(tmp_path / "none", ctas=[(2, 0, 0)])
    with refuses(RuntimeError):
        launch("mov.u32 %r0, 1;").save(tmp_path / "none")


def test_of_ctas_beyond_the_first_memory_is_as_they_left_it(tmp_path):
    body = "mov.u32 %r0, smem; mov.u32 %r1, %ctaid.x; st.shared.u32 [%r0], %r1;"
    run = launch(body, grid=(40, 1, 1), smem=4, inspect=True)
    told = cutepy.load_run(run.save(tmp_path / "x", ctas=[(15,), (39,)])).launches[0]
    assert [cta.followed for cta in told.ctas] == [True, False]
    assert [cta.smem(dtype="uint32")[0] for cta in told.ctas] == [15, 39]
    with refuses(LookupError):
        told.cta((39,)).smem(0)
    assert len(cutepy.load_run(run.save(tmp_path / "y")).launches[0].ctas) == 16


@pytest.mark.parametrize("cluster", [(3, 1, 1), (1, 3, 1), (1, 1, 3), (16, 1, 1)])
def test_memory_of_whole_clusters_is_followed(tmp_path, cluster):
    """Of 16 CTAs at most: five clusters of three."""
    run = launch("st.shared.u32 [%r0], 1;", grid=(48, 3, 3), cluster=cluster, smem=4, inspect=True)
    told = cutepy.load_run(run.save(tmp_path / "x")).launches[0]
    followed = {cta.cta for cta in told.ctas if cta.followed}
    whole = [n * extent for n, extent in zip((5 if 3 in cluster else 1, 1, 1), cluster, strict=True)]
    assert followed == set(itertools.product(*map(range, whole)))


@pytest.mark.parametrize(("room", "kept"), [(12 * 32 * 2, True), (12 * 32 * 2 - 1, False)])
def test_memory_is_followed_as_long_as_there_is_room(tmp_path, monkeypatch, room, kept):
    """Two stores of four bytes by 32 lanes, each with its address of eight."""
    monkeypatch.setattr("cutepy.sim.inspect.tracing.ROOM_BYTES", room)
    body = "mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 2; st.shared.u32 [%r1], %r1; st.shared.u32 [%r1], 7;"
    told = cutepy.load_run(launch(body, smem=128, inspect=True).save(tmp_path / "x")).launches[0].ctas[0]
    assert told.followed == kept
    assert (told.smem(dtype="uint32") == 7).all()


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def changed(path, member, change):
    files = members(path)
    value = json.loads(files[member])
    change(value)
    return packed(files | {member: json.dumps(value)})


EVENTS = "launch0/cta0_0_0/events.json"


def box(rank=5, extent=256, address=0):
    names = {"operation": "load", "dtype": "u8", "swizzle": "SW128"}
    return {**names, "coordinates": [-1] * rank, "box": [extent] * rank, "address": address}


def test_boxes_of_all_ranks_are_read(saved):
    boxes = [box(rank) for rank in range(1, 6)]
    read = load_run(changed(saved[1], EVENTS, lambda x: x["events"][0].update(boxes=boxes)))
    assert read.launches[0].cta((0, 0, 0)).events[0]["boxes"] == boxes


@pytest.mark.parametrize(
    ("member", "change"),
    [
        ("run.json", lambda x: x.update(format="zip")),
        ("run.json", lambda x: x.update(version=2)),
        ("run.json", lambda x: x.pop("launches")),
        ("run.json", lambda x: x["launches"][0].update(smem_bytes=1 << 40)),
        ("run.json", lambda x: x["launches"][0].update(smem_bytes=1)),
        ("run.json", lambda x: x["launches"][0]["ctas"][0].update(events="../../etc/passwd")),
        ("run.json", lambda x: x["launches"][0]["ctas"][0].update(cta=[0, 0])),
        ("run.json", lambda x: x["launches"][0].update(name=["x"] * 1000)),
        (EVENTS, lambda x: x["events"][0].update(instruction=10**6)),
        (EVENTS, lambda x: x["events"][0].update(instruction=True)),
        (EVENTS, lambda x: x["events"][0].update(phase="later")),
        (EVENTS, lambda x: x["events"][0].update(warps=[9])),
        (EVENTS, lambda x: x["events"][0].update(instruction=-1)),
        (EVENTS, lambda x: x["events"][0].update(step=-1)),
        (EVENTS, lambda x: x["events"][0].update(operation=-1)),
        (EVENTS, lambda x: x["events"][0].update(warps=[-1])),
        (EVENTS, lambda x: x["events"][0].update(boxes=[box(rank=6)])),
        (EVENTS, lambda x: x["events"][0].update(boxes=[box(extent=0)])),
        (EVENTS, lambda x: x["events"][0].update(boxes=[box(address=-128)])),
        (EVENTS, lambda x: x["events"][0].update(writes=[[2040, 16]], contents=0)),
        (EVENTS, lambda x: x["events"][0].update(writes=[[0, 999]], contents=0)),
        (EVENTS, lambda x: x["barriers"].update({"-1": "x"})),
        (EVENTS, lambda x: x["barriers"].update({"²": "x"})),
    ],
)
def test_a_file_that_lies_is_refused(saved, member, change):
    with refuses(SavedRunError):
        load_run(changed(saved[1], member, change))


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}], dtype=object),
        np.zeros((16, 16), np.uint8),
        np.zeros(32, np.int64),
    ],
)
def test_arrays_of_anything_but_bytes_are_refused(saved, array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    files = members(saved[1]) | {"launch0/cta0_0_0/contents.npy": buffer.getvalue()}
    with refuses(SavedRunError):
        load_run(packed(files))


def test_nothing_is_unpickled(saved):
    class Bomb:
        def __reduce__(self):
            return pytest.fail, ("unpickled",)

    for name in ("run.json", "launch0/cta0_0_0/contents.npy"):
        with pytest.raises(SavedRunError):
            load_run(packed(members(saved[1]) | {name: pickle.dumps(Bomb())}))


def test_a_header_that_claims_more_than_there_is_allocates_nothing(saved):
    head = (
        b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(118)
    )
    with refuses(SavedRunError):
        load_run(packed(members(saved[1]) | {"launch0/cta0_0_0/contents.npy": head}))


def test_bombs_are_refused_before_they_are_unpacked(saved, monkeypatch):
    monkeypatch.setattr("cutepy.sim.inspect.saving.MAX_BYTES", 1 << 20)
    bomb = packed(members(saved[1]) | {"launch0/cta0_0_0/contents.npy": bytes(2 << 20)})
    assert len(bomb) < 1 << 16
    with refuses(SavedRunError):
        load_run(bomb)
    with refuses(SavedRunError):
        load_run(packed({"run.json": b"[" * 200_000}))


@pytest.mark.parametrize(
    ("count", "name", "each"),
    [
        (saving.MAX_MEMBERS, "a.npy", 0),
        (2, "a.npy", saving.MAX_BYTES // 2),
        (2, "a.json", saving.MAX_JSON_BYTES // 2),
    ],
)
def test_as_much_as_may_be_is_read_and_no_more(count, name, each):
    members = [SimpleNamespace(filename=name, file_size=each) for _ in range(count)]
    saving.check_sizes(members)
    with pytest.raises(SavedRunError):
        saving.check_sizes([*members, SimpleNamespace(filename=name, file_size=min(each, 1))])


def test_what_is_too_much_to_read_is_not_saved(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("cutepy.sim.inspect.saving.MAX_JSON_BYTES", 1000)
    with refuses(ValueError):
        saved[0].save(tmp_path / "large.cutepy")
    assert not (tmp_path / "large.cutepy").exists()


@settings(max_examples=60)
@given(data=st.data())
def test_damage_is_refused_or_harmless(saved, data):
    contents = saved[1].read_bytes()
    cut = data.draw(st.integers(0, len(contents) - 1))
    replaced = data.draw(st.binary(max_size=8))
    damaged = contents[:cut] + replaced + contents[cut + len(replaced) + data.draw(st.integers(0, 4)) :]
    try:
        read = load_run(damaged)
    except SavedRunError:
        return
    assert len(read.launches) == 1
