"""Record what a GPU makes of the corpus and of the opcode tests' launches.

    python -m tests.sim.hardware.record OUT.json                 # where there is a GPU, and the DSL
    python -m tests.sim.hardware.record --pack build/hardware.npz          # without a GPU: compile and simulate
    python -m tests.sim.hardware.record --play build/hardware.npz OUT.json  # with a GPU; needs numpy only
    python -m tests.sim.hardware.record --simulate OUT.json      # what the simulator makes of it, in the same form

Beside OUT.json, OUT.npz holds all that differed from the simulator's results, for study.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import hashlib
import importlib.metadata
import json
import platform
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.sim.hardware import compare
from tests.sim.hardware.launches import CapturedLaunch, digest_of, load, normalised, save
from tests.sim.hardware.playing import Outcome, play

_KEY_BYTES = 8


def dsl_build() -> str:
    """Return the DSL's version, and which build of its compiler is installed."""
    try:
        version = importlib.metadata.version("nvidia-cutlass-dsl")
    except importlib.metadata.PackageNotFoundError:
        return "none"
    for build in ("cu12", "cu13"):
        try:
            importlib.metadata.version(f"nvidia-cutlass-dsl-libs-{build}")
        except importlib.metadata.PackageNotFoundError:
            continue
        return f"{version}+{build}"
    return version


def case_entry(case: Any, launches: list[CapturedLaunch]) -> dict[str, Any]:
    """Return what identifies a case: hashes of its kernels' PTX and of its inputs; how it is compared."""
    entry = {
        "ptx": _hash([normalised(launch.ptx).encode() for launch in launches]),
        "inputs": _hash([launch.key(padded=case.dsl) for launch in launches]),
        "dsl": case.dsl,
    }
    return entry | ({"kind": case.bounds.kind, "absolute": case.bounds.absolute} if case.bounds else {})


def outputs_entry(
    entry: dict[str, Any], launches: list[CapturedLaunch], memory: list[list[np.ndarray[Any, Any]]]
) -> dict[str, Any]:
    """Record outputs: a hash of all memory where they are exact, else a sample of the values."""
    if "kind" not in entry:
        return {"output": _hash([digest_of(m, launch.kinds()) for launch, m in zip(launches, memory, strict=True)])}
    bits = compare.elements(compare.written_by(launches, memory), entry["kind"])
    sample = compare.sampled(bits)
    return {"count": len(bits), "sample": base64.b64encode(sample.tobytes()).decode()}


def packed_launches(keys: list[bytes], digests: list[bytes]) -> str:
    """Return a table of launches, key and digest side by side, in the order of the keys."""
    rows = sorted({key[:_KEY_BYTES]: digest[:_KEY_BYTES] for key, digest in zip(keys, digests, strict=True)}.items())
    return base64.b64encode(b"".join(key + digest for key, digest in rows)).decode()


def unpacked_launches(text: str) -> dict[bytes, bytes]:
    """Return the table that `packed_launches` packed."""
    data = base64.b64decode(text)
    rows = [data[n : n + 2 * _KEY_BYTES] for n in range(0, len(data), 2 * _KEY_BYTES)]
    return {row[:_KEY_BYTES]: row[_KEY_BYTES:] for row in rows}


def _hash(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]


def pack(path: Path) -> None:
    """Run everything in the simulator, and write the launches to a file."""
    from tests.sim.hardware.capture import capturing
    from tests.sim.hardware.corpus import all_cases
    from tests.sim.hardware.opcodes import opcode_tests, run_all

    launches: list[CapturedLaunch] = []
    cases: dict[str, dict[str, Any]] = {}
    opcodes: dict[str, list[int]] = {}
    for case in all_cases():
        with capturing() as found:
            case.run()
        cases[case.name] = case_entry(case, found) | {"launches": [len(launches), len(launches) + len(found)]}
        launches += found
    for name, function in opcode_tests():
        with capturing() as found:
            run_all(function)
        opcodes[name] = [len(launches), len(launches) + len(found)]
        launches += found
    save(path, launches, {"cases": cases, "opcodes": opcodes, "dsl": dsl_build()})
    print(f"{len(cases)} cases and {len(opcodes)} opcode tests, {len(launches)} launches: {path}")


def write(bundle: Path, output: Path, outcomes: list[Outcome], about: dict[str, str]) -> None:
    """Write the recording, what differed, and a table of it."""
    launches, contents = load(bundle)
    recorded = {
        "gpu": about.get("gpu", "simulator"),
        "driver": about.get("driver", "none"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "dsl": contents["dsl"],
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    cases = {}
    print(f"{recorded['gpu']}, driver {recorded['driver']}, DSL {recorded['dsl']}\n\ncorpus: what differs")
    for name, entry in contents["cases"].items():
        part = slice(*entry.pop("launches"))
        cases[name] = entry | _case_result(name, entry, launches[part], outcomes[part])
    equal = sum(c.get("measured") in ("equal", {"equal": 1.0, "ulps": 0}) for c in cases.values())
    print(f"{equal} of {len(cases)} cases are equal bit for bit\n\nopcode tests: what differs")
    keys, digests = [], []
    for name, span in contents["opcodes"].items():
        part = slice(*span)
        _print_opcodes(name, launches[part], outcomes[part])
        for launch, outcome in zip(launches[part], outcomes[part], strict=True):
            if not outcome.error:
                keys.append(launch.key())
                digests.append(digest_of(outcome.memory, launch.kinds()))
    text = json.dumps({"recorded": recorded, "cases": cases, "opcodes": packed_launches(keys, digests)}, indent=1)
    output.write_text(text + "\n")
    _write_differences(output.with_suffix(".npz"), launches, outcomes)
    print(f"\n{output}: {len(text)} bytes; {len(keys)} opcode launches")


def _case_result(
    name: str, entry: dict[str, Any], launches: list[CapturedLaunch], outcomes: list[Outcome]
) -> dict[str, Any]:
    errors = [outcome.error for outcome in outcomes if outcome.error]
    if errors:
        print(f"  {name:48} ERROR {errors[0][:200]}")
        return {"error": errors[0][:200]}
    memory = [outcome.memory for outcome in outcomes]
    result = outputs_entry(entry, launches, memory)
    hardware = compare.written_by(launches, memory)
    simulated = compare.written_by(launches, [launch.after for launch in launches])
    if "kind" in entry:
        pair = (compare.elements(memory, entry["kind"]) for memory in (simulated, hardware))
        found = compare.distance(*pair, entry["kind"], entry["absolute"])
        print(f"  {name:48} {found.equal:8.2%} equal, {found.ulps} ulps, {found.absolute:.3g} at {found.worst}")
        return result | {"measured": {"equal": round(found.equal, 4), "ulps": found.ulps}}
    same = [digest_of(m, x.kinds()) == digest_of(x.after, x.kinds()) for x, m in zip(launches, memory, strict=True)]
    if not all(same):
        differing = np.flatnonzero(hardware != simulated)
        print(f"  {name:48} DIFFERS in {len(differing)} of {len(hardware)} bytes, {list(differing[:4])}")
    return result | {"measured": "equal" if all(same) else "differs"}


def _print_opcodes(name: str, launches: list[CapturedLaunch], outcomes: list[Outcome]) -> None:
    errors = Counter(outcome.error[:160] for outcome in outcomes if outcome.error)
    differing = [
        n
        for n, (x, o) in enumerate(zip(launches, outcomes, strict=True))
        if not o.error and digest_of(o.memory, x.kinds()) != digest_of(x.after, x.kinds())
    ]
    if differing or errors:
        print(f"  {name:40} {len(differing)} of {len(launches)} differ {differing[:6]}")
    for error, count in errors.most_common(3):
        print(f"    {count} x {error}")


def _write_differences(path: Path, launches: list[CapturedLaunch], outcomes: list[Outcome]) -> None:
    """Write the hardware's bytes of the regions that differ, by launch and region."""
    arrays = {}
    for n, (launch, outcome) in enumerate(zip(launches, outcomes, strict=True)):
        if outcome.error:
            arrays[f"{n}.error"] = np.array(outcome.error)
            continue
        for region, (found, expected) in enumerate(zip(outcome.memory, launch.after, strict=True)):
            if not np.array_equal(found, expected):
                arrays[f"{n}.{region}"] = found
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def main() -> None:
    """Parse the command line, and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--pack", action="store_true")
    ways.add_argument("--play", type=Path, metavar="BUNDLE")
    ways.add_argument("--simulate", action="store_true")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    if options.pack:
        pack(options.output)
    else:
        with _Bundle(options.play) as (bundle, folder):
            if options.simulate:
                outcomes, about = [Outcome(launch.after) for launch in load(bundle)[0]], {}
            else:
                outcomes, about = play(bundle, folder)
            write(bundle, options.output, outcomes, about)


class _Bundle:
    """Give a bundle, packed now if there is none, and a folder for what is temporary."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._folder = tempfile.TemporaryDirectory(prefix="cutepy-hardware-")

    def __enter__(self) -> tuple[Path, Path]:
        folder = Path(self._folder.name)
        if self._path is None:
            self._path = folder / "bundle.npz"
            pack(self._path)
        return self._path, folder

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


if __name__ == "__main__":
    main()
