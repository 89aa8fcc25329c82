"""A script that looks for a hazard on a GPU: the launch as it was, what the simulator leaves, and the runner."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.replay.exploring import played, reference
from cutepy.sim.replay.holding import site_of
from cutepy.sim.replay.outcomes import Request, overlaid
from cutepy.sim.replay.reproducers.instrument import VARIABLE, Delay, with_delays
from cutepy.sim.translate import linked, translate

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.memory import GlobalMemory, Region
    from cutepy.sim.replay.outcomes import Outcome
    from cutepy.sim.replay.snapshots import Snapshot
    from cutepy.sim.sanitize.hazards import Hazard, Side

MAX_BYTES = 64 << 20
"""Of memory that a script carries."""

_UNWRITTEN = 0xA5
"""In registers that nothing has written: bytes that depend on them are not compared, a GPU has anything there."""

_DELAYED = ["as it is", "the first side delayed", "the second side delayed"]
_FILLED = ["as it is", "shared memory is NaN before and after"]
_WAYS = {"uninitialised-read": _FILLED, "in-flight-at-exit": _FILLED}

_DEBUG_SECTION = re.compile(r"^\s*\.section[^{]*\{.*?^\s*\}", re.M | re.S)
_PLACE = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*$", re.M)
_RUNNER = Path(__file__).with_name("gpu_runner.py")


def write_script(
    hazard: Hazard, launch: Launch, snapshot: Snapshot, memory: GlobalMemory, others: Sequence[Outcome], path: Path
) -> Path:
    """Write a script that looks for a hazard on a GPU.

    Parameters
    ----------
    hazard : Hazard
    launch : Launch
    snapshot : Snapshot
        Memory before the launch.
    memory : GlobalMemory
        Knows the tensors.
    others : sequence of Outcome
        What the launch comes to where the sides come in another order.
    path : Path

    Raises
    ------
    ValueError
        If the launch uses more memory than a script may carry.
    """
    outcome = reference(snapshot, with_reads=True)
    unknown = [] if outcome.error else _with_other_registers(launch, snapshot)
    regions = _used(launch, memory, outcome)
    total = sum(region.end - region.start for region in regions)
    if total > MAX_BYTES:
        raise ValueError(f"a script carries at most {MAX_BYTES} bytes of memory, got {total}; use a smaller launch")
    told, digest = [], hashlib.blake2b(digest_size=16)
    for region in regions:
        before = snapshot.read(*(np.array([x], np.int64) for x in (region.start, region.end)))
        after = before if outcome.error else overlaid(region.start, before, outcome)
        alternatives = [] if outcome.error else [overlaid(region.start, before, other) for other in others]
        undetermined = [overlaid(region.start, before, other) != after for other in unknown]
        digest.update(after.tobytes())
        told.append(
            {
                "name": region.name.rstrip(",") or "a range",
                "address": region.start,
                "size": region.end - region.start,
                "data": _packed(before.tobytes()),
                "after": _packed(after.tobytes()),
                "others": [_packed((after ^ other).tobytes()) for other in alternatives],
                "undetermined": [where for mask in undetermined for where in _runs_of(mask)],
            }
        )
    function = linked(launch.ptx, launch.kernel).function
    sides = [side for side in (hazard.before, hazard.after) if side is not None and side.instruction is not None]
    delayed = with_delays(launch.ptx, function, delays_of(sides))
    what: dict[str, Any] = {
        "name": path.stem,
        "hazard": str(hazard),
        "kernel": launch.kernel,
        "grid": launch.grid,
        "block": launch.block,
        "cluster": list(launch.cluster),
        "smem_bytes": launch.dynamic_smem_bytes,
        "cooperative": launch.cooperative,
        "variable": VARIABLE,
        "ways": _WAYS.get(hazard.kind, _DELAYED),
        "parameters": [_packed(data) for data in launch.parameters.values()],
        "memory": told,
        "expected": None if outcome.error else digest.hexdigest(),
    }
    path.write_text(_script(what, launch.ptx, delayed))
    return path


def _with_other_registers(launch: Launch, snapshot: Snapshot) -> list[Outcome]:
    """Return what a launch comes to if registers that nothing has written hold something; nothing if none is read."""
    if not translate(launch.ptx, launch.kernel).flow.live_in[0]:
        return []
    return [one for one in played(snapshot, [Request(unwritten=_UNWRITTEN)]) if not one.error]


def _runs_of(mask: Array) -> list[list[int]]:
    """Return where runs of true begin and end.

    >>> _runs_of(np.array([True, False, True, True]))
    [[0, 1], [2, 4]]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]])))
    found: list[list[int]] = edges.reshape(-1, 2).tolist()
    return found


def delays_of(sides: list[Side]) -> list[Delay]:
    """Return where to delay the sides of a hazard: in all CTAs, if the two are in the same one."""
    sites = [site_of(side) for side in sides]
    apart = len({site.cta for site in sites}) > 1
    return [Delay(site.instruction, site.warp, site.cta if apart else None) for site in sites]


def loadable(ptx: str) -> str:
    """Strip the places of source lines: the driver's compiler refuses files that do not exist."""
    return _PLACE.sub("", _DEBUG_SECTION.sub("", ptx))


def _used(launch: Launch, memory: GlobalMemory, outcome: Outcome) -> list[Region]:
    """Return the memory that a launch reads, writes or is given the address of, but for what belongs to its module."""
    addresses = [
        int(word)
        for data in launch.parameters.values()
        for word in np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
    ]
    if outcome.starts is not None:
        addresses += outcome.starts.tolist()
    if outcome.reads is not None:
        addresses += outcome.reads[0].tolist()
    own = [placed.data.ctypes.data for placed in launch.variables]
    own += [block.ctypes.data for block in (launch.parameter_block, launch.grid_workspace) if block is not None]
    found = {region.start: region for a in addresses if (region := memory.find(a, a + 1)) is not None}
    return [found[start] for start in sorted(found) if start not in own]


def _packed(data: bytes) -> str:
    return base64.b85encode(zlib.compress(data, 9)).decode()


def _script(what: dict[str, Any], ptx: str, delayed: str) -> str:
    source = _RUNNER.read_text()
    _, _, code = source.partition('"""\n\nfrom __future__')
    told = json.dumps(what, indent=0)
    return "\n".join(
        [
            '"""Look for a hazard on an H200: python THIS [LAUNCHES]. It needs an NVIDIA driver, and nothing else.',
            "",
            *(line.rstrip() for line in what["hazard"].replace("\\", "/").splitlines()),
            '"""',
            "",
            f"from __future__{code}",
            "",
            f"PTX = r'''{loadable(ptx)}'''",
            "",
            f"DELAYED_PTX = r'''{loadable(delayed)}'''",
            "",
            f"WHAT = json.loads(r'''{told}''')",
            'WHAT["ptx"], WHAT["delayed_ptx"] = PTX, DELAYED_PTX',
            "",
            'if __name__ == "__main__":',
            "    sys.exit(main(__file__, WHAT))",
            "",
        ]
    )
