"""Timelines in the Trace Event Format, as `cutepy predict` and `cutepy profile` write them."""

import json

SOURCE = {"kernel.py": {str(n): f"line {n} of <kernel>" for n in range(4, 17)}}


def span(pid, tid, name, begin, took, **args):
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin, "dur": took, "args": args}


def named(pid, tid, process, thread):
    return [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process}},
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}},
    ]


def predicted():
    """Two loads that overlap, an MMA, and a warp that waits twice."""
    events = [
        *named(0, 0, "gemm, SM 0", "copies"),
        *named(0, 1, "gemm, SM 0", "CTA 0 warp 4"),
        *named(1, 0, "gemm, SM 1", "copies"),
        span(0, 0, "load 16384 bytes", 0.5, 1.0, line="kernel.py:6"),
        span(0, 0, "load 16384 bytes", 0.6, 1.2, line="kernel.py:6"),
        span(0, 1, "runs", 0.0, 4.0),
        span(0, 1, "wait: copies", 0.25, 1.25, line="kernel.py:10"),
        span(0, 1, "wait: tensor cores", 2.0, 1.5, line="kernel.py:12"),
        span(1, 0, "load 16384 bytes", 0.5, 2.0, line="kernel.py:6"),
    ]
    told = {"time": "predicted, microseconds", "sources": SOURCE}
    return json.dumps({"traceEvents": events, "otherData": told}).encode()


def measured():
    """A CTA's warp with a wait and an MMA, whose clock begins at 100 microseconds."""
    of = "9:00000"
    events = [
        *named(of, 4, "CTA 0 of grid 9, SM 3", "warp 4"),
        span(of, 4, "wait", 100.0, 1.75, argument=0, clocks=3080),
        span(of, 4, "multiply", 101.75, 3.25, argument=0, clocks=5700),
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode()
