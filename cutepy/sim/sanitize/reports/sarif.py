"""Reports in the Static Analysis Results Interchange Format (SARIF), for code scanning.

Each result has a place in a file, which GitHub asks for: a line of the source, or of the PTX where there is no other.
PTX that was read from no file is part of the log. Paths are relative to the working directory, which is to be the root
of the repository, where they are in it.

References
----------
OASIS: Static Analysis Results Interchange Format (SARIF) Version 2.1.0. GitHub: "SARIF support for code scanning".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from cutepy.sim.ptx.source_lines import shortened
from cutepy.sim.sanitize.hazards import Hazard, Side
from cutepy.sim.sanitize.kinds import KINDS, Kind
from cutepy.sim.sanitize.reports.excerpts import Excerpt, excerpt, excerpt_of

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ISA = "https://docs.nvidia.com/cuda/parallel-thread-execution/"

Json = dict[str, Any]


def as_sarif(
    hazards: Iterable[Hazard], script: str = "", notes: Sequence[tuple[str, str]] = (), is_whole: bool = True
) -> Json:
    """Return hazards as a SARIF log of one run.

    Parameters
    ----------
    hazards : iterable of Hazard
    script : str
        The file of a result that has no place of its own.
    notes : sequence of (str, str)
        Further notifications of the run, each with its level: "error" or "note".
    is_whole : bool
        True if all that should have run is told of.
    """
    log = _Log(script)
    results = [log.result(hazard) for hazard in hazards]
    run: Json = {
        "tool": {"driver": _driver()},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri().rstrip("/") + "/"}},
        "results": results,
        "invocations": [
            {
                "executionSuccessful": is_whole,
                "toolExecutionNotifications": [{"level": level, "message": {"text": text}} for text, level in notes],
            }
        ],
    }
    if log.artifacts:
        run["artifacts"] = log.artifacts
        run["originalUriBaseIds"]["PTX"] = {"description": {"text": "PTX that is in no file: `artifacts` have it."}}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _driver() -> Json:
    driver: Json = {"name": "cutepy sanitize", "rules": [*map(_rule, KINDS.values())]}
    try:
        driver["version"] = metadata.version("cutepy")
    except metadata.PackageNotFoundError:  # a checkout that isn't installed
        pass
    return driver


def _rule(kind: Kind) -> Json:
    is_hazard = kind.severity == "hazard"
    return {
        "id": kind.name,
        "shortDescription": {"text": _sentence(kind.gist.replace("`", ""))},
        "fullDescription": {"text": _sentence(kind.meaning.replace("`", ""))},
        "help": {
            "text": f"{_sentence(kind.missing)} PTX ISA, {kind.section}.",
            "markdown": f"{_sentence(kind.meaning)}\n\n{_sentence(kind.missing)}\n\n[PTX ISA]({_ISA}), {kind.section}.",
        },
        "helpUri": _ISA,
        "defaultConfiguration": {"level": _level(kind.severity)},
        "properties": {
            "tags": ["concurrency" if is_hazard else "performance", "cuda"],
            "precision": "high",
            "problem.severity": "error" if is_hazard else "recommendation",
        },
    }


def _sentence(text: str) -> str:
    """End a sentence, and begin it, unless that is by an opcode."""
    word = text.partition(" ")[0]
    return f"{text}." if "." in word or "_" in word or "`" in word else f"{text[:1].upper()}{text[1:]}."


def _level(severity: str) -> str:
    return "error" if severity == "hazard" else "note"


class _Log:
    """The results of a log, and the PTX that they are in.

    Attributes
    ----------
    artifacts : list of dict
        PTX that has no file.
    """

    def __init__(self, script: str) -> None:
        self._script = script
        self._names: dict[str, str] = {}  # by the PTX
        self._fingerprints: Counter[str] = Counter()
        self.artifacts: list[Json] = []

    def result(self, hazard: Hazard) -> Json:
        operations = ", then ".join(side.operation for side in hazard.sides)
        witness = "" if hazard.witness is None else f" Witness: {hazard.witness.said}."
        near = "".join(f" Near miss: {one.why}." for one in hazard.near_misses)
        located = [(side, self._location(side, hazard.kernel)) for side in hazard.sides]
        besides = [one.side for one in hazard.near_misses if one.side is not None]
        besides += [side for wait in hazard.waits[1:] for side in wait.sides]
        # Code scanning shows one place: the last that there is, as who comes second finds the mistake.
        placed = [(side, location) for side, location in located if "physicalLocation" in location]
        shown = placed[-1] if placed else located[-1]
        if not placed and self._script:
            artifact = _artifact(shortened(self._script))
            shown[1]["physicalLocation"] = {"artifactLocation": artifact, "region": {"startLine": 1}}
        result: Json = {
            "ruleId": hazard.kind,
            "ruleIndex": [*KINDS].index(hazard.kind),
            "level": _level(hazard.severity),
            "message": {"text": f"{hazard.subject}: {operations}. {_sentence(hazard.missing)}{near}{witness}"},
            "locations": [shown[1]],
            "relatedLocations": [
                {**location, "id": number}
                for number, location in enumerate(
                    [
                        *(location for _, location in located if location is not shown[1]),
                        *(self._location(side, hazard.kernel) for side in besides),
                    ],
                    1,
                )
            ],
            "occurrenceCount": hazard.count,
            "partialFingerprints": self._partial(hazard),
            "suppressions": [*_suppressions(hazard)],
        }
        if placed:
            result["codeFlows"] = [{"threadFlows": [self._flow(*one) for one in placed]}]
            stacks = [self._stack(*one) for one in placed if one[0].callers]
            result |= {"stacks": stacks} if stacks else {}
        return result

    def _partial(self, hazard: Hazard) -> dict[str, str]:
        found = _fingerprint(hazard)
        self._fingerprints[found] += 1
        # GitHub compares the second only, and takes equal ones for one alert.
        return {"sides/v1": found, "primaryLocationLineHash": f"{found[:16]}:{self._fingerprints[found]}"}

    def _location(self, side: Side, kernel: str) -> Json:
        location: Json = {"message": {"text": side.operation}}
        if kernel:
            location["logicalLocations"] = [{"name": kernel, "kind": "function"}]
        found = excerpt(side)
        if found is not None and found.file:
            is_in_log = not side.chain and not side.ptx_file
            artifact = self._in_log(side.ptx, kernel) if is_in_log else _artifact(found.file)
            location["physicalLocation"] = _physical(artifact, found if side.chain else _as_written(side, found))
        return location

    def _in_log(self, ptx: str, kernel: str) -> Json:
        """Return where PTX is that has no file, and put it there."""
        if ptx not in self._names:
            stem = "".join(c if c.isalnum() else "_" for c in kernel)[:_LONGEST] or "kernel"
            taken = sum(name.partition("-")[0] == stem for name in self._names.values())
            self._names[ptx] = f"{stem}-{taken + 1}" if taken else stem
            location = {"uri": _uri(f"{self._names[ptx]}.ptx"), "uriBaseId": "PTX"}
            contents = {"contents": {"text": ptx}} if ptx else {}
            self.artifacts.append({"location": location, "sourceLanguage": "ptx", **contents})
        return {
            "uri": _uri(f"{self._names[ptx]}.ptx"),
            "uriBaseId": "PTX",
            "index": [*self._names].index(ptx),
        }

    def _flow(self, side: Side, location: Json) -> Json:
        """Give the way to an operation, from the kernel's own line."""
        steps = [{"location": called} for called in (*_callers(side),)][::-1]
        return {"message": {"text": side.who}, "locations": [*steps, {"location": location}]}

    def _stack(self, side: Side, location: Json) -> Json:
        frames = [{"location": at} for at in (location, *_callers(side))]
        return {"message": {"text": side.operation}, "frames": frames}


_LONGEST = 100
"""Characters of the name of a file that is made up."""


def _as_written(side: Side, found: Excerpt) -> Excerpt:
    """Return an instruction of the PTX within its line, of which an excerpt has no more than the instruction."""
    lines = side.ptx.split("\n")
    line = lines[found.line - 1] if 0 < found.line <= len(lines) else ""
    text = "" if side.instruction is None else side.instruction.text.partition("\n")[0].rstrip()
    start = max(line.find(text), 0)
    return replace(found, text=line, start=start, end=start + len(text) if text in line else start)


def _callers(side: Side) -> Iterator[Json]:
    """Yield the lines that called, the nearest first."""
    for line in side.chain[1:]:
        found = excerpt_of(line)
        yield {"physicalLocation": _physical(_artifact(found.file), found), "message": {"text": "calls"}}


def _suppressions(hazard: Hazard) -> Iterator[Json]:
    if hazard.allowed:
        kind = "inSource" if hazard.allowed_at else "external"
        yield {"kind": kind, "status": "accepted", "justification": hazard.allowed}


def _artifact(file: str) -> Json:
    path = PurePath(file)
    return {"uri": path.as_uri()} if path.is_absolute() else {"uri": _uri(path.as_posix()), "uriBaseId": "SRCROOT"}


def _uri(path: str) -> str:
    return quote(path, errors="surrogateescape")


def _physical(artifact: Json, found: Excerpt) -> Json:
    region: Json = {"startLine": max(found.line, 1)}
    context: Json = {}
    if found.start < found.end:
        context = {"contextRegion": {**region, "snippet": {"text": found.text}}}
        region |= {"startColumn": found.start + 1, "endColumn": found.end + 1}
        region["snippet"] = {"text": found.text[found.start : found.end]}
    return {"artifactLocation": artifact, "region": region, **context}


def _fingerprint(hazard: Hazard) -> str:
    """Return a fingerprint that stays as long as the two lines do, wherever they move."""
    texts = [hazard.kind]
    for side in hazard.sides:
        found, i = excerpt(side), side.instruction
        opcode = "" if i is None else i.opcode
        texts.append("" if found is None else f"{PurePath(found.file).name} {found.text.strip() or opcode}")
    return hashlib.sha256("\n".join(texts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
