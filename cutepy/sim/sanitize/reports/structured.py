"""Reports for other programs: JSON, and the Static Analysis Results Interchange Format (SARIF).

References
----------
OASIS: Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from cutepy.sim.sanitize.kinds import KINDS, Kind
from cutepy.sim.sanitize.reports.excerpts import Excerpt, excerpt, excerpt_of

if TYPE_CHECKING:
    from cutepy.sim.sanitize.hazards import Hazard, Side
    from cutepy.sim.sanitize.reports.allowances import Allowance

VERSION = 1
"""Of the JSON; one that takes something away is another."""

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def as_json(
    hazards: Sequence[Hazard], advisories: Sequence[Hazard], allowed: Sequence[Hazard], unused: Sequence[Allowance]
) -> dict[str, object]:
    """Return a report as `json.dump` takes it."""
    return {
        "version": VERSION,
        "hazards": [*map(_hazard, hazards)],
        "advisories": [*map(_hazard, advisories)],
        "allowed": [*map(_hazard, allowed)],
        "unused": [{"kinds": [*a.kinds], "reason": a.reason, "file": a.file, "line": a.line} for a in unused],
    }


def _hazard(hazard: Hazard) -> dict[str, object]:
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
        "missing": hazard.missing,
        "allowed": hazard.allowed,
        "allowed_at": hazard.allowed_at,
    }


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
        "callers": [{"file": line.file, "line": line.line} for line in side.chain[1:]],
        "ptx": None if i is None else " ".join(i.text.split()),
        "ptx_line": None if i is None else i.line,
    }


def as_sarif(hazards: Iterable[Hazard]) -> dict[str, object]:
    """Return hazards as a SARIF log of one run."""
    names = [*KINDS]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "cutepy sanitize", "rules": [*map(_rule, KINDS.values())]}},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri() + "/"}},
                "results": [_result(hazard, names.index(hazard.kind)) for hazard in hazards],
            }
        ],
    }


def _rule(kind: Kind) -> dict[str, object]:
    return {
        "id": kind.name,
        "shortDescription": {"text": _sentence(kind.meaning.replace("`", "").partition(": ")[0])},
        "fullDescription": {"text": _sentence(kind.meaning.replace("`", ""))},
        "help": {
            "text": f"{_sentence(kind.missing)} PTX ISA, {kind.section}.",
            "markdown": f"{_sentence(kind.meaning)}\n\n{_sentence(kind.missing)}\n\nPTX ISA, {kind.section}.",
        },
        "defaultConfiguration": {"level": _level(kind.severity)},
    }


def _sentence(text: str) -> str:
    """End a sentence, and begin it, unless that is by an opcode."""
    word = text.partition(" ")[0]
    return f"{text}." if "." in word or "_" in word or "`" in word else f"{text[:1].upper()}{text[1:]}."


def _level(severity: str) -> str:
    return "error" if severity == "hazard" else "note"


def _result(hazard: Hazard, rule: int) -> dict[str, object]:
    what = f"{hazard.buffer} ({hazard.where})" if hazard.buffer else hazard.where
    sides = [side.deed for side in hazard.sides]
    message = f"{what} of {hazard.kernel}: {', then '.join(sides)}. {_sentence(hazard.missing)}"
    result: dict[str, Any] = {
        "ruleId": hazard.kind,
        "ruleIndex": rule,
        "level": _level(hazard.severity),
        "message": {"text": message},
        "locations": [_location(hazard.after, hazard.kernel)],
        "occurrenceCount": hazard.count,
        "partialFingerprints": {"sides/v1": _fingerprint(hazard)},
        "codeFlows": [{"threadFlows": [_flow(side, hazard.kernel) for side in hazard.sides]}],
    }
    if hazard.before is not None:
        result["relatedLocations"] = [{**_location(hazard.before, hazard.kernel), "id": 1}]
    result["suppressions"] = []
    if hazard.allowed:
        result["suppressions"] = [
            {"kind": "inSource" if hazard.allowed_at else "external", "justification": hazard.allowed}
        ]
    return result


def _location(side: Side, kernel: str) -> dict[str, object]:
    found = excerpt(side)
    location: dict[str, object] = {
        "message": {"text": side.deed},
        "logicalLocations": [{"name": kernel, "kind": "function"}],
    }
    if found is not None and side.chain:
        location["physicalLocation"] = _physical(found)
    return location


def _physical(found: Excerpt) -> dict[str, object]:
    path = PurePath(found.file)
    artifact = {"uri": path.as_uri()} if path.is_absolute() else {"uri": path.as_posix(), "uriBaseId": "SRCROOT"}
    region: dict[str, object] = {"startLine": found.line}
    if found.text:
        region |= {
            "startColumn": found.start + 1,
            "endColumn": found.end + 1,
            "snippet": {"text": found.text},
        }
    return {"artifactLocation": artifact, "region": region}


def _flow(side: Side, kernel: str) -> dict[str, object]:
    """Give the way to an operation, from the kernel's own line."""
    steps = [
        {"location": {"physicalLocation": _physical(excerpt_of(line)), "message": {"text": "calls"}}}
        for line in side.chain[:0:-1]
    ]
    return {"message": {"text": side.who}, "locations": [*steps, {"location": _location(side, kernel)}]}


def _fingerprint(hazard: Hazard) -> str:
    """Return what stays as long as the two lines do, wherever they move."""
    found = [excerpt(side) for side in hazard.sides]
    texts = [hazard.kind, *("" if one is None else f"{one.file} {one.text.strip()}" for one in found)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
