"""Script that looks for a hazard on a GPU: the recorded launches, the simulator's results, and the runner."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.launch import Launch
from cutepy.sim.replay.episodes import Episode, after
from cutepy.sim.replay.outcomes import Outcome, Request, site_of
from cutepy.sim.replay.reproducers.instrument import VARIABLE, Delay, with_delays
from cutepy.sim.sanitize.hazards import Hazard

MAX_BYTES = 64 << 20
"""Of memory that a script carries."""

_UNWRITTEN = 0xA5
"""In registers that nothing has written: bytes that depend on them are not compared, a GPU has anything there."""

_DELAYED = ["as it is", "the first side delayed", "the second side delayed"]
_FILLED = ["as it is", "shared memory is NaN before and after"]
_WAYS = {"uninitialised-read": _FILLED, "in-flight-at-exit": _FILLED}

_DEBUG_SECTION = re.compile(r"^\s*\.section[^{]*\{.*?^\s*\}", re.M | re.S)
_PLACE = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*$", re.M)
_DRIVER, _RUNNER = (Path(__file__).with_name(name) for name in ("gpu_driver.py", "gpu_runner.py"))
_FUTURE = "from __future__ import annotations\n"
_IMPORT = re.compile(r"^from cutepy[^\n]*\n", re.M)


def write_script(hazard: Hazard, episode: Episode, others: Sequence[Sequence[Outcome]], path: Path) -> Path:
    """Write a script that looks for a hazard on a GPU.

    Parameters
    ----------
    hazard : Hazard
    episode : Episode
        The launches that it spans.
    others : sequence of sequences of Outcome
        Outcomes of the launches in order, with the sides in another order.
    path : Path

    Raises
    ------
    ValueError
        If the launches use more memory than a script may carry, or the host changes it between them.
    """
    is_known = not episode.error
    used = {region.start: region for part in episode.parts for region in part.used}  # no bytes of it yet
    total = sum(region.end - region.start for region in used.values())
    if total > MAX_BYTES:
        raise ValueError(f"a script carries at most {MAX_BYTES} bytes of memory, got {total}; use a smaller launch")
    outcomes = [part.outcome for part in episode.parts] if is_known else []
    unknown = _with_other_registers(episode) if is_known else []
    told, digest = [], hashlib.blake2b(digest_size=16)
    for start, (region, before) in episode.regions.items():
        left = after(start, before, outcomes)
        alternatives = [after(start, before, other) for other in others if is_known]
        digest.update(left.tobytes())
        told.append(
            {
                "name": region.name.rstrip(",") or "a range",
                "address": start,
                "size": region.end - start,
                "data": _packed(before.tobytes()),
                "after": _packed(left.tobytes()),
                "others": [_packed((left ^ other).tobytes()) for other in alternatives],
                "undetermined": [] if not unknown else _runs_of(after(start, before, unknown) != left),
            }
        )
    sides = sides_of(hazard, episode)
    launches = [_launch(part.launch, sides[number]) for number, part in enumerate(episode.parts)]
    delayed = sum(len(delays) for delays in sides)
    what: dict[str, Any] = {
        "name": path.stem,
        "hazard": str(hazard),
        "variable": VARIABLE,
        "ways": _WAYS.get(hazard.kind, _DELAYED[: 1 + delayed]),
        "memory": told,
        "expected": digest.hexdigest() if is_known else None,
        "launches": [told for told, _ in launches],
    }
    path.write_text(_script(what, [texts for _, texts in launches]))
    return path


def _launch(launch: Launch, delays: Sequence[Delay]) -> tuple[dict[str, Any], tuple[str, str]]:
    """Return the part of a script for one launch, and its PTX without delays and with them."""
    told = {
        "kernel": launch.kernel,
        "grid": launch.grid,
        "block": launch.block,
        "cluster": list(launch.cluster),
        "in_clusters": launch.in_clusters,
        "smem_bytes": launch.dynamic_smem_bytes,
        "cooperative": launch.cooperative,
        "programmatic": launch.programmatic,
        "stream": launch.stream,
        "parameters": [_packed(data) for data in launch.parameters.values()],
        "sides": [delay.side for delay in delays],
    }
    return told, (launch.ptx, with_delays(launch.ptx, launch.entry.function, delays))


def _with_other_registers(episode: Episode) -> list[Outcome]:
    """Return the outcomes of launches with other values in unwritten registers; nothing if none is read."""
    launches = [part.launch for part in episode.parts]
    if not any(launch.entry.flow.live_in[0] for launch in launches):
        return []
    found = [part.played(Request(unwritten=_UNWRITTEN)) for part in episode.parts]
    return [] if any(one.error for one in found) else found


def _runs_of(mask: Array) -> list[list[int]]:
    """Return where runs of true begin and end.

    >>> _runs_of(np.array([True, False, True, True]))
    [[0, 1], [2, 4]]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]])))
    return edges.reshape(-1, 2).tolist()


def sides_of(hazard: Hazard, episode: Episode) -> list[list[Delay]]:
    """List the delays of each launch for the sides of a hazard: in all CTAs, if both sides are in one CTA."""
    sides = [side for side in (hazard.before, hazard.after) if side is not None]
    ctas = {side.cta for side in sides} - {None}
    found: list[list[Delay]] = [[] for _ in episode.parts]
    for number, side in enumerate(side for side in sides if side.instruction is not None):
        site = site_of(side)
        at = next((n for n, part in enumerate(episode.parts) if part.launch is side.launch), -1)
        found[at].append(Delay(site.instruction, site.warp, site.cta if len(ctas) > 1 else None, number))
    return found


def loadable(ptx: str) -> str:
    """Strip the places of source lines: the driver's compiler refuses files that do not exist."""
    return _PLACE.sub("", _DEBUG_SECTION.sub("", ptx))


def _packed(data: bytes) -> str:
    return base64.b85encode(zlib.compress(data, 9)).decode()


def _script(what: dict[str, Any], texts: Sequence[tuple[str, str]]) -> str:
    pieces = []
    for number, (ptx, delayed) in enumerate(texts):
        pieces += [
            f"PTX_{number} = r'''{loadable(ptx)}'''",
            "",
            f"DELAYED_PTX_{number} = r'''{loadable(delayed)}'''",
            "",
        ]
    target = re.findall(r"\.target\s+(\w+)", texts[0][0])[0]
    given = [
        f'WHAT["launches"][{number}] |= {{"ptx": PTX_{number}, "delayed_ptx": DELAYED_PTX_{number}}}'
        for number in range(len(texts))
    ]
    return "\n".join(
        [
            f'"""Look for a hazard on a GPU of {target}: python THIS [LAUNCHES].',
            "",
            "It needs an NVIDIA driver, and nothing else.",
            "",
            *(line.rstrip() for line in what["hazard"].replace("\\", "/").splitlines()),
            '"""',
            "",
            _FUTURE,
            *(_IMPORT.sub("", path.read_text().partition(_FUTURE)[2]) for path in (_DRIVER, _RUNNER)),
            *pieces,
            f"WHAT = json.loads(r'''{json.dumps(what, indent=0)}''')",
            *given,
            "",
            'if __name__ == "__main__":',
            "    sys.exit(main(__file__, WHAT))",
            "",
        ]
    )
