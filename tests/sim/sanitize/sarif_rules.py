"""Rules of SARIF 2.1.0 and GitHub's code scanning for the objects of a log.

The properties, what they must hold and which are required are those of the specification's sections on these objects
(3.13 and on) and of GitHub's page "SARIF support for code scanning". A property that isn't here is an error, so that
what is added to a log is added here, after its section.
"""

import re

from cutepy.sim.sanitize.kinds import KINDS

_URI = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]+")
_ABSOLUTE = re.compile(r"[a-z]+:///?[^/]")
MESSAGE = {"text!": str, "markdown": str}
SNIPPET = {"text!": str}
REGION = {"startLine!": "line", "startColumn": "line", "endColumn": "line", "snippet": SNIPPET}
ARTIFACT_LOCATION = {"uri!": "uri", "uriBaseId": str, "index": int}
PHYSICAL = {"artifactLocation!": ARTIFACT_LOCATION, "region!": REGION, "contextRegion": REGION}
LOCATION = {
    "id": int,
    "message": MESSAGE,
    "physicalLocation": PHYSICAL,
    "logicalLocations": [{"name!": str, "kind": {"function"}}],
}
PLACED = {**LOCATION, "physicalLocation!": PHYSICAL}
RULE = {
    "id!": str,
    "shortDescription!": MESSAGE,
    "fullDescription!": MESSAGE,
    "help!": MESSAGE,
    "helpUri!": "absolute uri",
    "defaultConfiguration": {"level": {"none", "note", "warning", "error"}},
    "properties": {
        "tags": [str],
        "precision": {"very-high", "high", "medium", "low"},
        "problem.severity": {"error", "warning", "recommendation"},
    },
}
RESULT = {
    "ruleId!": set(KINDS),
    "ruleIndex": int,
    "level": {"none", "note", "warning", "error"},
    "message!": MESSAGE,
    "locations!": [PLACED],
    "relatedLocations": [LOCATION],
    "occurrenceCount": "line",
    "partialFingerprints!": {"sides/v1": str, "primaryLocationLineHash!": str},
    "suppressions": [{"kind!": {"inSource", "external"}, "status": {"accepted"}, "justification!": str}],
    "codeFlows": [{"threadFlows!": [{"message": MESSAGE, "locations!": [{"location!": PLACED}]}]}],
    "stacks": [{"message": MESSAGE, "frames!": [{"location": PLACED}]}],
}
BASE = {"uri": "absolute uri", "description": MESSAGE}
RUN = {
    "tool!": {
        "driver!": {"name!": str, "version": str, "rules!": [RULE]},
    },
    "columnKind": {"unicodeCodePoints"},
    "originalUriBaseIds": {"SRCROOT!": BASE, "PTX": BASE},
    "results!": [RESULT],
    "artifacts": [
        {"location!": ARTIFACT_LOCATION, "sourceLanguage": str, "contents": SNIPPET},
    ],
    "invocations": [
        {
            "executionSuccessful!": bool,
            "toolExecutionNotifications": [{"level": {"note", "error"}, "message!": MESSAGE}],
        }
    ],
}
LOG = {"$schema": "absolute uri", "version!": {"2.1.0"}, "runs!": [RUN]}
_MAY_BE_EMPTY = ("relatedLocations", "suppressions", "results", "toolExecutionNotifications")


def check_sarif(log):
    """Check a log."""
    _check(log, LOG, "log")
    for run in log["runs"]:
        rules = run["tool"]["driver"]["rules"]
        assert [rule["id"] for rule in rules] == [*KINDS]
        hashes = [result["partialFingerprints"]["primaryLocationLineHash"] for result in run["results"]]
        assert len(hashes) == len(set(hashes))
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            assert len(result["locations"]) == 1
        _check_uris(run, run)


def _check(value, rule, where):
    if isinstance(rule, dict):
        assert isinstance(value, dict), where
        known = {name.rstrip("!"): inner for name, inner in rule.items()}
        assert value.keys() <= known.keys(), (where, value.keys() - known.keys())
        missing = {name.rstrip("!") for name in rule if name.endswith("!")} - value.keys()
        assert not missing, (where, missing)
        for name, inner in value.items():
            _check(inner, known[name], f"{where}.{name}")
    elif isinstance(rule, list):
        assert isinstance(value, list), where
        assert value or where.rpartition(".")[2] in _MAY_BE_EMPTY, where
        for inner in value:
            _check(inner, rule[0], where)
    elif isinstance(rule, set):
        assert value in rule, (where, value)
    elif rule == "line":
        assert type(value) is int, where
        assert value >= 1, where
    elif isinstance(rule, str):
        assert isinstance(value, str), where
        assert _URI.fullmatch(value), (where, value)
        assert rule == "uri" or _ABSOLUTE.match(value), (where, value)
    else:
        assert type(value) is rule, (where, value)
        if rule is str and where.endswith(".text"):
            assert value.encode(), where  # of no lone surrogates
            assert value or "snippet" in where or "contents" in where, where


def _check_uris(value, run):
    """Check that a path is relative to a base that there is, or absolute, and that regions are within lines."""
    if isinstance(value, list):
        for inner in value:
            _check_uris(inner, run)
    elif isinstance(value, dict):
        if "artifactLocation" in value:
            artifact, region = value["artifactLocation"], value["region"]
            assert ("uriBaseId" in artifact) == (not _ABSOLUTE.match(artifact["uri"]))
            assert artifact.get("uriBaseId", "SRCROOT") in run["originalUriBaseIds"]
            if "uriBaseId" in artifact:
                assert not artifact["uri"].startswith("/")
            if "index" in artifact:
                assert run["artifacts"][artifact["index"]]["location"]["uri"] == artifact["uri"]
            if "startColumn" in region:
                text = value["contextRegion"]["snippet"]["text"]
                assert text[region["startColumn"] - 1 : region["endColumn"] - 1] == region["snippet"]["text"] != ""
        if "uri" in value and "description" not in value and "uriBaseId" not in value and "region" not in value:
            assert _ABSOLUTE.match(value["uri"])
        for inner in value.values():
            _check_uris(inner, run)
