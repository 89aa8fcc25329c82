"""Launches that loop or call without end are stopped, and it is said where their lanes were."""

import itertools
import math
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import cutepy
from cutepy.sim import LimitError, MemoryAccessError, Observer
from cutepy.sim.machine import limits
from cutepy.sim.options import checked_limit
from cutepy.sim.translate import Kernel
from tests.messages import pins, refuses

pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
LOOP = (
    HEAD
    + """.visible .entry k(.param .u64 x) { .reg .b32 %r<4>; .reg .b64 %rd<3>; .reg .pred %p, %q;
ld.param.u64 %rd0, [x]; mov.u32 %r0, 0; mov.u32 %r2, %tid.x; setp.ge.u32 %q, %r2, 32;
@%q bra OTHER;
LOOP: add.u32 %r0, %r0, 1; BODY
setp.ne.u32 %p, %r0, 0x7fffffff; @%p bra LOOP;
OTHER:
bar.sync 0;
st.global.u32 [%rd0], %r0;
ret; }"""
)
BODIES = {
    "counts": "",
    "stores": "st.global.u32 [%rd0], %r0;",
    "adds": "atom.global.add.u32 %r1, [%rd0], 1;",
}
POLICIES = [None, "late", "schedule:1"]


def launch(body, **options):
    module, x = cutepy.load_ptx(LOOP.replace("BODY", BODIES[body])), np.zeros(8, np.uint32)
    with cutepy.simulate(**options) as run:
        module.launch("k", grid=2, block=64, args=(x,))
    return run


@pytest.mark.parametrize(("body", "policy"), list(zip(BODIES, POLICIES, strict=True)))
def test_a_launch_ends_at_its_limit_of_instructions(body, policy):
    with pytest.raises(LimitError) as error:
        launch(body, policy=policy, limit_instructions=5000)
    told = str(error.value)
    pins(told)
    assert 5000 < int(re.search(r"run for (\d+) instructions", told)[1]) < 50_000
    (looping,) = (line for line in error.value.lanes if "line 7 of the PTX" in line)
    assert "threads 0-31 of CTA" in looping
    assert any("bar.sync 0" in line and "threads 32-63 of CTA" in line for line in error.value.lanes)
    assert all(("waiting for" in line) == ("bar.sync 0" in line) for line in error.value.lanes)
    assert not error.value.mistakes  # no hazard


@pytest.mark.parametrize("policy", POLICIES)
def test_a_launch_ends_at_its_limit_of_seconds(policy):
    start = time.perf_counter()
    with pytest.raises(LimitError):
        launch("adds", policy=policy, limit_seconds=0.2)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("sanitize", [False, True])
def test_the_limit_of_seconds_is_looked_at_before_each_block_of_code(monkeypatch, sanitize):
    """A block of a large grid under the sanitizer may take a hundredth of a second, and a turn of lanes 1000 blocks."""
    ticks = itertools.count()
    module, x = cutepy.load_ptx(LOOP.replace("BODY", BODIES["adds"])), np.zeros(8, np.uint32)
    with cutepy.simulate(sanitize=sanitize, limit_seconds=1) as run:
        monkeypatch.setattr(
            limits, "time", SimpleNamespace(perf_counter=lambda: time.perf_counter() + next(ticks) / 50)
        )
        with pytest.raises(LimitError):
            module.launch("k", grid=2, block=32, args=(x,))
    assert sum(run.instructions.values()) < 1000


def test_the_translation_of_a_launch_counts(monkeypatch):
    def late(*args, program=Kernel.program):
        time.sleep(0.7)
        return program(*args)

    monkeypatch.setattr(Kernel, "program", late)
    with refuses(LimitError):
        launch("adds", limit_seconds=0.5)


@pytest.mark.integration
@pytest.mark.parametrize("context", ["simulate"])
def test_the_error_tells_how_long_a_fresh_process_loads(tmp_path, context):
    """The run's context loads the DSL before the first launch: the seconds of a clock on the wall are both together."""
    script = (
        "import time\nimport numpy as np\nimport cutepy\nfrom cutepy.frontends import contexts\n"
        f"module = cutepy.load_ptx({LOOP.replace('BODY', '')!r})\n"
        f"enter = contexts.{context}\nstart = time.perf_counter()\n"
        "try:\n    with enter(limit_seconds=0.3):\n        module.launch('k', grid=2, block=64, args=ARGS)\n"
        "except cutepy.sim.LimitError as error:\n    print(time.perf_counter() - start, str(error).splitlines()[0])\n"
    ).replace("ARGS", "(np.zeros(8, np.uint32),)" if context == "simulate" else "(0,)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    taken, told = done.stdout.split(" ", 1)
    ran, loaded = (float(re.search(p, told)[1]) for p in (r"run for ([\d.]+)", r"took ([\d.]+) seconds before"))
    assert ran < 0.3 + loaded
    assert ran + loaded == pytest.approx(float(taken), abs=0.5, rel=0.3)


def test_what_ends_before_its_limit_is_not_stopped():
    module, x = cutepy.load_ptx(LOOP.replace("0x7fffffff", "40").replace("BODY", "")), np.zeros(8, np.uint32)
    with cutepy.simulate(limit_instructions=1000, limit_seconds=60) as run:
        for _ in range(8):  # each launch has a limit of its own
            module.launch("k", grid=2, block=64, args=(x,))
    assert run.stats["instructions"] > 1000


def test_a_sanitized_launch_that_is_stopped_tells_its_hazards_too():
    with pytest.raises(LimitError):
        launch("stores", policy="schedule:1", sanitize=True, limit_instructions=100)


@pytest.mark.parametrize(
    ("seconds", "instructions", "error"),
    [
        (0, None, ValueError),
        (-1, None, ValueError),
        (math.inf, None, ValueError),
        (math.nan, None, ValueError),
        ("5", None, TypeError),
        (True, None, TypeError),
        (None, 0, ValueError),
        (None, 1.5, TypeError),
    ],
)
def test_what_is_no_limit_is_refused(seconds, instructions, error):
    with refuses(error):
        checked_limit(seconds, instructions)


class Interrupting(Observer):
    """Press Ctrl-C at the nth access."""

    def __init__(self, at):
        self._left = at

    def on_access(self, access):
        self._left -= 1
        if not self._left:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("policy", POLICIES)
def test_ctrl_c_says_where_the_lanes_were(policy):
    with pytest.raises(KeyboardInterrupt) as stopped:
        launch("stores", policy=policy, observers=[Interrupting(300)])
    (note,) = stopped.value.__notes__
    assert note.startswith("k was stopped; its lanes were\n")
    assert "at line 7 of the PTX" in note
    assert "threads 0-31 of CTA" in note


CALLS = (
    HEAD
    + """.func (.reg .b32 %o) even(.reg .b32 %n);
.func (.reg .b32 %o) odd(.reg .b32 %n) { .reg .b32 %r<4>; .reg .pred %p; .local .b8 room[ROOM];
add.u32 %r1, %n, 1; setp.eq.u32 %p, %r1, DEPTH; mov.u32 %o, %r1; @%p ret; CALL
mov.u32 %o, %r2; ret; }
.func (.reg .b32 %o) even(.reg .b32 %n) { .reg .b32 %r<4>;
add.u32 %r1, %n, 1; call.uni (%r2), odd, (%r1); mov.u32 %o, %r2; ret; }
.visible .entry k(.param .u64 x) { .reg .b32 %r<4>; .reg .b64 %rd<3>;
ld.param.u64 %rd0, [x]; mov.u32 %r0, 0; call.uni (%r1), odd, (%r0); st.global.u32 [%rd0], %r1; ret; }"""
)


def recurse(called, room, depth):
    text = (
        CALLS.replace("CALL", f"call.uni (%r2), {called}, (%r1);")
        .replace("ROOM", str(room))
        .replace("DEPTH", str(depth))
    )
    x = np.zeros(1, np.uint32)
    with cutepy.simulate():
        cutepy.load_ptx(text).launch("k", grid=1, block=32, args=(x,))
    return int(x[0])


@pytest.mark.parametrize(("called", "room"), [("odd", 4096), ("even", 8192)])
def test_recursion_without_end_is_told(called, room):
    with refuses(MemoryAccessError):
        recurse(called, room, 0)


def test_recursion_without_frames_is_told(monkeypatch):
    monkeypatch.setattr("cutepy.sim.mechanisms.calls._MOST_CALLS", 100)
    with refuses(MemoryAccessError):
        recurse("odd", 16, 0)


def test_recursion_that_ends_runs():
    assert recurse("odd", 1024, 60) == 60
