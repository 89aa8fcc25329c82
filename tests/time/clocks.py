"""Clocks of the SMs: light, under arithmetic, under a stream of DRAM, under tensor cores until power limits them."""

from __future__ import annotations

import shutil
import subprocess
import time

import numpy as np

from tests.time.global_memory import _stream
from tests.time.instructions import chain
from tests.time.machine import Figure, Launch, Machine, Records, figure
from tests.time.tensor_cores import _SMEM, group

_N, _COUNT = 256, 16
FLOPS = 2 * 64 * _N * 16 * _COUNT
"""Of a turn of one warpgroup."""


def hertz(records: Records) -> float:
    """Return the clock of a launch: cycles against the global timer, the median of CTAs."""
    words = records.words
    nanoseconds = words[:, :, 3].max(1) - words[:, :, 2].min(1)
    return float(np.median(records.cycles / np.maximum(1, nanoseconds))) * 1e9


def clocks(machine: Machine) -> dict[str, object]:
    """Run one warp, FFMAs of all SMs, and a stream of DRAM."""
    text = chain("ffma", 4)
    turns = 2 if machine.simulated else 100_000
    alone = figure(hertz(machine.records(text, turns // 4 + 1, Launch())) for _ in range(5))
    everywhere = Launch(machine.sms, 1024)
    arithmetic = figure(
        [hertz(machine.records(text, turns, everywhere)) for _ in range(1 if machine.simulated else 12)][-6:]
    )
    nbytes = 1 << 20 if machine.simulated else 4 << 30
    data = machine.zeros(nbytes)
    launch = Launch(4 * machine.sms, 512, extra=(np.uint64(nbytes),))
    streams = [
        hertz(machine.records(_stream("read"), 1 if machine.simulated else 50, launch, data))
        for _ in range(2 if machine.simulated else 10)
    ]
    return {
        "clock.idle_hz": alone,
        "clock.alu_hz": arithmetic,
        "clock.memory_hz": figure(streams[-5:]),
        "clock.globaltimer_step": _step(machine),
    }


def _step(machine: Machine) -> float:
    """Return the least step of the global timer, in ns."""
    from tests.time.ptx import timed

    text = timed(
        """mov.u64 %rd2, %globaltimer; sub.u64 %rd3, %rd2, %rd1; mov.u64 %rd1, %rd2;
setp.ne.u64 %p1, %rd3, 0;
@%p1 min.u64 %w5, %w5, %rd3;""",
        setup="mov.u64 %rd1, %globaltimer; mov.u64 %w5, 1000000;", threads=32,
    )  # fmt: skip
    return float(machine.records(text, 2 if machine.simulated else 20_000, Launch()).words[0, 0, 5])


def sustained(machine: Machine) -> dict[str, object]:
    """Multiply without pause by two warpgroups of each SM: random numbers for two seconds, zeros for one."""
    machine.prepare([group("bf16", _N, "ss", _COUNT, threads=256, random=random) for random in (True, False)])
    launch = Launch(machine.sms, 256, _SMEM)
    made: dict[str, object] = {}
    rates: dict[str, Figure] = {}
    for name, seconds in (("random", 2.0), ("zeros", 1.0)):
        text = group("bf16", _N, "ss", _COUNT, threads=256, random=name == "random")
        turns = 1 if machine.simulated else 1200  # 5 ms or so
        machine.records(text, 1, launch)
        time.sleep(0 if machine.simulated else 0.5)
        begin, watts, ramp, flops = time.monotonic(), [], {}, []
        while not flops or time.monotonic() - begin < (0 if machine.simulated else seconds):
            records = machine.records(text, turns, launch)
            at = int((time.monotonic() - begin) * 1000)
            ramp[at] = hertz(records)
            flops.append(FLOPS * 2 * machine.sms * turns / records.span_ns * 1e9)
        late = [value for at, value in ramp.items() if at > 0.6 * seconds * 1000] or [*ramp.values()]
        rates[f"bf16_{name}"] = figure(flops[len(flops) * 6 // 10 :])
        made["clock.tensor_hz" if name == "random" else "clock.tensor_zeros_hz"] = figure(late)
        if name == "random":
            chosen = [*ramp][:: max(1, len(ramp) // 40)]
            made["clock.tensor_ramp"] = {str(at): Figure(ramp[at]) for at in chosen}
            watts = _watts(machine, text, launch, turns)
            made["power.tensor_w"], made["power.limit_w"] = watts or (None, None)
    return {**made, "tensor.sustained_flops": rates}


def _watts(machine: Machine, text: str, launch: Launch, turns: int) -> tuple[float, float] | None:
    """Return the power while tensor cores work, and its limit, as nvidia-smi says."""
    tool = shutil.which("nvidia-smi")
    if tool is None or machine.simulated:
        return None
    for _ in range(600):
        machine.start(text, turns, launch)
    command = [tool, "--query-gpu=power.draw,power.limit", "--format=csv,noheader,nounits", "-i", "0"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout
    machine.left(launch)
    try:
        drawn, limit = (float(word) for word in said.strip().split(","))
    except ValueError:
        return None
    return drawn, limit


BENCHMARKS = (clocks, sustained)
