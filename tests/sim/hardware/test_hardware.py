"""The simulator against recordings of a GPU: equal bits where operations are exact, within stated bounds elsewhere.

A recording holds hashes of the PTX and the inputs it was made from. If one of these has changed, the comparison would
mean nothing: the test fails and says how to record again.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sim.hardware import compare, opcodes, record
from tests.sim.hardware.capture import capturing
from tests.sim.hardware.corpus import NOT_RECORDED, REWRITTEN, Case, all_cases
from tests.sim.hardware.launches import digest_of

HAS_DSL = importlib.util.find_spec("cutlass") is not None
FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))
AGAIN = "record it again on a GPU: python -m tests.sim.hardware.record OUT.json"
CASES = {case.name: case for case in all_cases(dsl=HAS_DSL)}
pytestmark = [pytest.mark.integration, pytest.mark.skipif(not FIXTURES, reason="there is no recording yet")]


@cache
def recording() -> dict[str, Any]:
    return json.loads(FIXTURES[-1].read_text())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.dsl] if case.dsl else []) for n, case in CASES.items()]
)
def test_case(name):
    case, recorded = CASES[name], recording()["cases"].get(name)
    if recorded is None and name.startswith(NOT_RECORDED):
        pytest.skip("it waits for the next recording")
    assert recorded is not None, f"{name} is not in the recording: {AGAIN}"
    assert "error" not in recorded, f"{name} failed on the GPU: {recorded.get('error')}"
    with capturing() as launches:
        case.run()
    entry = record.case_entry(case, launches)
    if name.startswith(REWRITTEN):
        assert entry["ptx"] != recorded["ptx"], f"{name} is as it was recorded; take it from corpus.REWRITTEN"
    elif not case.dsl or record.dsl_build() == recording()["recorded"]["dsl"]:
        # Another build of the DSL's compiler may choose other instructions: then the results alone are compared.
        assert entry["ptx"] == recorded["ptx"], f"the PTX of {name} has changed: {AGAIN}"
        assert entry["inputs"] == recorded["inputs"], f"the inputs of {name} have changed: {AGAIN}"
    found = record.outputs_entry(entry, launches, [launch.after for launch in launches])
    if case.bounds is None:
        assert found["output"] == recorded["output"], f"{name} differs from {recording()['recorded']['gpu']}"
    else:
        check_bounds(case, found, recorded)


def check_bounds(case: Case, found: dict[str, Any], recorded: dict[str, Any]) -> None:
    assert case.bounds is not None
    assert found["count"] == recorded["count"]
    mine, theirs = (
        compare.elements(np.frombuffer(base64.b64decode(x["sample"]), np.uint8), case.bounds.kind)
        for x in (found, recorded)
    )
    apart = compare.distance(mine, theirs, case.bounds.kind, case.bounds.absolute)
    assert apart.ulps <= case.bounds.ulps, (case.name, apart)
    assert apart.equal >= case.bounds.equal, (case.name, apart)


def test_the_recording_is_of_the_version_of_the_dsl_that_is_pinned():
    pinned = re.search(r"^nvidia-cutlass-dsl==(\S+)", (Path(__file__).parents[3] / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    assert recording()["recorded"]["dsl"].partition("+")[0] == pinned[1], AGAIN


def test_the_recording_has_no_cases_that_are_gone():
    if HAS_DSL:
        assert set(recording()["cases"]) == set(CASES), AGAIN


def test_the_recordings_are_small():
    assert sum(path.stat().st_size for path in FIXTURES) < 300_000


OPCODES = dict(opcodes.opcode_tests())


@cache
def recorded_launches() -> dict[bytes, bytes]:
    return record.unpacked_launches(recording()["opcodes"])


# The opcode tests themselves compare each value of these launches with exact arithmetic.
DEAR = (
    "convert.between_integers",
    "convert.float_to_integer",
    "convert.integer_to_float",
    "convert.setp",
    "float.arithmetic",
    "integer.arithmetic",
    "memory.load_and_store",
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.deep] * (n in DEAR)) for n in OPCODES])
def test_opcode(name):
    """Each launch of an opcode test leaves the memory that the GPU left."""
    with capturing() as launches:
        opcodes.run_all(OPCODES[name])
    size = record._KEY_BYTES
    known = [(x, recorded_launches()[x.key()[:size]]) for x in launches if x.key()[:size] in recorded_launches()]
    differing = [n for n, (x, digest) in enumerate(known) if digest_of(x.after, x.kinds())[:size] != digest]
    reason, allowed = opcodes.DIFFERENCES.get(name, ("", 0))
    assert len(differing) <= allowed, f"{name}: launches {differing} of {len(known)} differ from the GPU ({reason})"
    _, missing = opcodes.NOT_RECORDED.get(name, ("", 0))
    assert len(known) == len(launches) - missing, (
        f"{name}: {len(launches) - len(known)} of {len(launches)} launches are not in the recording, where {missing} "
        f"may be missing; {AGAIN}, or say in opcodes.NOT_RECORDED that they wait for it"
    )
