"""Memory of the CUDA runtime, as the sanitizer sees it."""

import ctypes
from contextlib import nullcontext

import numpy as np
import pytest

import cutepy
from cutepy.frontends.backend import tell
from cutepy.frontends.cuda_runtime.memory import MemoryCalls
from cutepy.frontends.cuda_runtime.streams import StreamCalls
from cutepy.runtime import devices
from cutepy.sim.machine.events import StreamEvent
from cutepy.sim.sanitize import HazardError
from tests.messages import refuses

PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry put(.param .u64 x) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [x]; st.global.u32 [%rd1], 1; ret; }
"""
ONE, OTHER = 1000, 2000


@pytest.mark.parametrize("waits", [False, True])
def test_memory_that_is_freed_in_a_stream_while_another_uses_it(waits):
    calls, pointer = MemoryCalls(), ctypes.c_uint64()
    with nullcontext() if waits else refuses(HazardError):
        with cutepy.simulate(sanitize=True):
            calls.do_cudaMallocAsync(ctypes.addressof(pointer), 64, ONE)
            memory = np.ctypeslib.as_array((ctypes.c_uint32 * 16).from_address(pointer.value))
            for stream in (ONE, OTHER):
                tell(StreamEvent("create", stream, blocking=False))
            cutepy.load_ptx(PTX).launch("put", 1, 1, [memory], stream=OTHER)
            if waits:
                tell(StreamEvent("record", OTHER, 7))
                tell(StreamEvent("wait", ONE, 7))
            assert calls.do_cudaFreeAsync(pointer.value, ONE) == 0
    assert calls.do_cudaFreeAsync(pointer.value, ONE) != 0


@pytest.mark.parametrize("name", ["cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority", "cudaStreamCreate"])
@pytest.mark.parametrize("flags", [0, 1])
def test_a_stream_waits_for_the_default_one_unless_its_flags_say_that_it_does_not(name, flags, monkeypatch):
    told, handle = [], ctypes.c_uint64()
    monkeypatch.setattr("cutepy.frontends.cuda_runtime.streams.tell", told.append)
    given = () if name == "cudaStreamCreate" else (flags,)
    assert getattr(StreamCalls(), f"do_{name}")(ctypes.addressof(handle), *given) == 0
    assert told == [StreamEvent("create", handle.value, blocking=not any(given))]


@pytest.mark.parametrize("waits", [True, False])
def test_a_copy_waits_for_what_came_before_unless_it_is_asynchronous(waits, monkeypatch):
    told = []
    monkeypatch.setattr("cutepy.frontends.cuda_runtime.memory.tell", told.append)
    source, target = np.arange(4), np.zeros(4, int)
    copy = MemoryCalls().do_cudaMemcpy if waits else MemoryCalls().do_cudaMemcpyAsync
    assert copy(target.ctypes.data, source.ctypes.data, source.nbytes, 4, *[0] * (not waits)) == 0
    assert target.tolist() == source.tolist()
    assert [(event.operation, event.stream) for event in told if isinstance(event, StreamEvent)] == [
        ("synchronise", 0)
    ] * waits


@pytest.mark.parametrize("waits", [False, True])
def test_fills_of_two_streams_before_any_launch_are_ordered_or_told(waits):
    calls, pointer = MemoryCalls(), ctypes.c_uint64()
    with nullcontext() if waits else pytest.raises(HazardError) as raised, cutepy.simulate(sanitize=True):
        calls.do_cudaMalloc(ctypes.addressof(pointer), 64)
        for stream in (ONE, OTHER):
            tell(StreamEvent("create", stream, blocking=False))
        calls.do_cudaMemset(pointer.value, 7, 64, ONE)
        if waits:
            tell(StreamEvent("record", ONE, 7))
            tell(StreamEvent("wait", OTHER, 7))
        calls.do_cudaMemset(pointer.value + 4, 8, 4, OTHER)
    assert waits or [hazard.kind for hazard in raised.value.hazards] == ["unordered-write"]


def test_nothing_is_filled_at_no_address():
    calls = MemoryCalls()
    with cutepy.simulate():
        assert [calls.do_cudaMemset(None, 7, size) for size in (0, 1, 64)] == [0, 1, 1]


def test_free_memory_is_what_has_not_been_allocated():
    calls, pointer, free, total = MemoryCalls(), ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()

    def told():
        assert calls.do_cudaMemGetInfo(ctypes.addressof(free), ctypes.addressof(total)) == 0
        assert total.value == devices.device().total_bytes
        return total.value - free.value

    assert told() == 0
    calls.do_cudaMalloc(ctypes.addressof(pointer), 1000)
    assert pointer.value % 256 == 0
    assert told() == 1000
    calls.do_cudaMalloc(ctypes.addressof(pointer), 24)
    assert told() == 1024
    assert calls.do_cudaFree(pointer.value) == 0
    assert told() == 1000


def test_pitched_rows_begin_at_multiples_of_512_bytes():
    calls, pointer, pitch = MemoryCalls(), ctypes.c_uint64(), ctypes.c_uint64()
    for width, row in ((1, 512), (512, 512), (513, 1024)):
        assert calls.do_cudaMallocPitch(ctypes.addressof(pointer), ctypes.addressof(pitch), width, 3) == 0
        assert pitch.value == row
        assert calls._memory[pointer.value].nbytes == 3 * row


def test_times_of_events_follow_each_other():
    calls, handles, elapsed = StreamCalls(), [], ctypes.c_float(-1)
    for _ in range(2):
        handles.append(ctypes.c_uint64())
        assert calls.do_cudaEventCreate(ctypes.addressof(handles[-1])) == 0
    first, second = (handle.value for handle in handles)
    assert first != second
    assert calls.do_cudaEventElapsedTime(ctypes.addressof(elapsed), first, second) == 400
    assert calls.do_cudaEventRecord(first, None) == 0
    assert calls.do_cudaEventElapsedTime(ctypes.addressof(elapsed), first, second) == 400
    assert calls.do_cudaEventRecordWithFlags(second, None, 0) == 0
    assert calls.do_cudaEventElapsedTime(ctypes.addressof(elapsed), first, second) == 0
    assert 0 <= elapsed.value < 60_000
    assert calls.do_cudaEventDestroy(first) == 0
    assert calls.do_cudaEventDestroy(first) == 400
    assert calls.do_cudaEventRecord(first, None) == 400
