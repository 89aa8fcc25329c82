"""Reports for other programs: hazards as JSON. `Report.to_json` has the format of a whole report.

Fields of a hazard:

- ``kind``, ``severity`` (``hazard`` or ``advisory``), ``meaning``: the kind and its text.
- ``missing``, ``diagnosis``: the advice, and its row in ``sim/advice.py``.
- ``kernel``, ``where``, ``buffer``, ``address``, ``size_bytes``: the bytes of both sides. An unknown name is ``""``;
  numbers are null outside of shared memory.
- ``count``: the number of pairs of operations of these lines.
- ``before``, ``after``: the sides; ``before`` may be null. A side has ``what``, ``who``, ``role``; ``cta``, ``warp``,
  ``lane``, or null; ``file``, ``line``, ``function``, ``callers`` (nearest first); ``ptx``, ``ptx_file``,
  ``ptx_line``, or null.
- ``between``: the place of the missing instruction: ``after`` and ``before`` (``file``, ``line``), ``next_round`` (a
  loop leads there); null for a single line.
- ``waits``: of a deadlock, the cause first: ``for``, ``lacks``, ``by`` (waiting sides), ``brought_by`` (sides that
  would end the wait, each with ``waits_for``).
- ``near_misses``: ``kind``, ``diagnosis``, ``why`` it does not count, ``side`` or null.
- ``made_at``: ``file`` and ``line`` of the barrier's object, or null.
- ``allowed``, ``allowed_at``: reason and line, or ``""``.
- ``witness``: null if not played; else ``policy`` for ``simulate(policy=...)``, ``how``, and ``kind`` and ``what`` of
  the change, null without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from cutepy.sim.sanitize.hazards import Hazard, InsertionPoint, Side, WaitingThreads
from cutepy.sim.sanitize.reports.allowances import Allowance
from cutepy.sim.sanitize.reports.excerpts import excerpt, function_at

VERSION = 1
"""Of the JSON; one that takes something away is another."""


def as_json(
    hazards: Sequence[Hazard], advisories: Sequence[Hazard], allowed: Sequence[Hazard], unused: Sequence[Allowance]
) -> dict[str, object]:
    """Return a report as `json.dump` takes it."""
    return {
        "version": VERSION,
        "hazards": [*map(of_hazard, hazards)],
        "advisories": [*map(of_hazard, advisories)],
        "allowed": [*map(of_hazard, allowed)],
        "unused": [{"kinds": [*a.kinds], "reason": a.reason, "file": a.file, "line": a.line} for a in unused],
    }


def of_hazard(hazard: Hazard) -> dict[str, object]:
    """Return a hazard as `json.dump` takes it."""
    return {
        "kind": hazard.kind,
        "severity": hazard.severity,
        "kernel": hazard.kernel,
        "where": hazard.where,
        "buffer": hazard.buffer,
        "address": hazard.address,
        "size_bytes": hazard.size_bytes,
        "count": hazard.count,
        "before": None if hazard.before is None else _side(hazard.before),
        "after": _side(hazard.after),
        "meaning": hazard.meaning,
        "diagnosis": hazard.diagnosis.case,
        "missing": hazard.missing,
        "between": None if hazard.between is None else _between(hazard.between),
        "made_at": None if hazard.made_at is None else {"file": hazard.made_at.file, "line": hazard.made_at.line},
        "waits": [*map(_waiting, hazard.waits)],
        "near_misses": [
            {
                "kind": one.kind,
                "diagnosis": one.diagnosis.case,
                "why": one.why,
                "side": None if one.side is None else _side(one.side),
            }
            for one in hazard.near_misses
        ],
        "allowed": hazard.allowed,
        "allowed_at": hazard.allowed_at,
        "witness": None if hazard.witness is None else hazard.witness.to_json(),
    }


def _waiting(wait: WaitingThreads) -> dict[str, object]:
    bringers = [
        {**_side(side), "waits_for": at, "is_sure": sure}
        for (side, at), sure in zip(wait.bringers, wait.are_sure, strict=True)
    ]
    return {"for": wait.at, "lacks": wait.lacks, "by": [*map(_side, wait.sides)], "brought_by": bringers}


def _between(between: InsertionPoint) -> dict[str, object]:
    lines = {name: getattr(between, name) for name in ("after", "before")}
    found = {name: {"file": line.file, "line": line.line} for name, line in lines.items()}
    return {**found, "next_round": between.is_next_round}


def _side(side: Side) -> dict[str, object]:
    i, found = side.instruction, excerpt(side)
    return {
        "what": side.what,
        "who": side.who,
        "role": side.role,
        "cta": None if side.cta is None else [*side.cta],
        "warp": side.warp,
        "lane": side.lane,
        "file": side.chain[0].file if side.chain else None,
        "line": side.chain[0].line if side.chain else None,
        "function": found.function if found is not None and side.chain else "",
        "callers": [
            {"file": line.file, "line": line.line, "function": function_at(line.file, line.line)}
            for line in side.chain[1:]
        ],
        "ptx": None if i is None else " ".join(i.text.split()),
        "ptx_file": side.ptx_file or None,
        "ptx_line": None if i is None else i.line,
    }


_Json = TypeVar("_Json", bound=object)


def encodable(value: _Json) -> _Json:
    r"""Return JSON whose texts are Unicode: names of files may have bytes that are none.

    Examples
    --------
    >>> encodable({"file": "a\udc80.py", "line": 3})
    {'file': 'a\\udc80.py', 'line': 3}
    """
    made: Any = value
    if isinstance(value, str):
        made = value.encode("utf-8", "backslashreplace").decode()
    elif isinstance(value, dict):
        made = {name: encodable(inner) for name, inner in value.items()}
    elif isinstance(value, (list, tuple)):
        made = [encodable(inner) for inner in value]
    return cast("_Json", made)
