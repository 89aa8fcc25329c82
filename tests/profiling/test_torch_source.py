"""Traces of torch's profiler, as torch 2.11 writes them."""

from cutepy.profiling import Record
from cutepy.profiling.torch_source import records_of


def annotation(name, ts, dur, tid=1):
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def call(name, ts, correlation, tid=1, cat="cuda_runtime"):
    args = {"correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": 2.5, "args": args}


def kernel(name, ts, dur, correlation, cat="kernel", **args):
    told = {"device": 0, "stream": 7, "correlation": correlation, **args}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": told}


SHAPE = {"grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 40, "shared memory": 1024}


def test_kernels_are_in_the_innermost_range_around_their_call():
    events = [
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "python"}},
        annotation("cutepy:0", 0, 100),
        annotation("cutepy:1", 10, 20),
        annotation("mine", 11, 5),
        annotation("cutepy:2", 40, 20, tid=2),
        call("cudaLaunchKernel", 12, 1),
        call("cuLaunchKernelEx", 45, 2, cat="cuda_driver"),
        call("cudaLaunchKernel", 200, 3),
        kernel("a", 300.5, 1.25, 1, **SHAPE),
        kernel("b", 302, 1, 2, **SHAPE),
        kernel("c", 304, 1, 3, **SHAPE),
        kernel("Memcpy HtoD", 306, 1, 4, cat="gpu_memcpy", bytes=64),
    ]
    a, b, c, copy = records_of(events)
    assert (a.scope, b.scope, c.scope, copy.scope) == (1, 0, None, None)
    assert a == Record(
        "a", "kernel", 300_500, 301_750, 0, 7, 1, None, 12_000, (4, 2, 1), (128, 1, 1), registers=40, smem_bytes=1024
    )
    assert (copy.kind, copy.bytes, copy.launched_ns) == ("copy", 64, None)


def test_kernels_of_a_graph_are_in_the_range_of_the_replay():
    events = [
        annotation("cutepy:5", 0, 10),
        call("cudaGraphLaunch", 1, 8),
        kernel("a", 20, 1, 8),
        kernel("b", 21, 1, 8),
    ]
    assert [(each.scope, each.graph_launch) for each in records_of(events)] == [(5, 8), (5, 8)]
