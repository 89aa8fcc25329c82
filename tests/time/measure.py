"""Measure the constants of the performance model on a GPU: `python -m tests.time.measure --out FILE`."""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.time import (
    barriers,
    clocks,
    copies,
    global_memory,
    instructions,
    launches,
    shared_memory,
    starts,
    tensor_cores,
)
from tests.time.constants import CONSTANTS
from tests.time.machine import Figure, Gpu, Machine

_MODULES = (instructions, shared_memory, barriers, global_memory, copies, tensor_cores, launches, starts, clocks)
BENCHMARKS = {
    f"{module.__name__.rsplit('.', 1)[-1]}.{function.__name__}": function
    for module in _MODULES
    for function in module.BENCHMARKS
}
_WORKER = (sys.executable, "-m", "tests.time.measure", "--work")


def constants(benchmark: str, machine: Machine) -> dict[str, Any]:
    """Run a benchmark; return its constants as the file has them."""
    return {key: constant(key, value) for key, value in BENCHMARKS[benchmark](machine).items()}


def constant(key: str, value: object) -> dict[str, Any]:
    """Return a constant with its unit, its spread (the largest of a table's) and the range that a number left."""
    about = CONSTANTS[key]
    leaves = [*_leaves(value)]
    made: dict[str, Any] = {"value": _plain(value), "unit": about.unit, "from": about.benchmark}
    made["spread"] = round(max((leaf.spread for leaf in leaves if isinstance(leaf, Figure)), default=0.0), 4)
    numbers = [leaf.value if isinstance(leaf, Figure) else leaf for leaf in leaves]
    if any(number is not None and not about.low <= number <= about.high for number in numbers):
        made["outside"] = [about.low, about.high]
    return made


def _leaves(value: object) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    number = value.value if isinstance(value, Figure) else value
    return number if number is None else float(f"{number:.5g}")


def work(names: list[str]) -> None:
    """Run benchmarks on the GPU; print a line of JSON for each. After an error the context may be lost: end."""
    machine = Gpu()
    print(json.dumps({"gpu": machine.name, "sms": machine.sms}), flush=True)
    machine.warm(0.5)
    for name in names:
        begin = time.monotonic()
        try:
            machine.warm(0.02)
            made = constants(name, machine)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {str(error)[:400]} ({Path(where.filename).name}:{where.lineno})"
            print(json.dumps({"benchmark": name, "error": text}), flush=True)
            return
        print(json.dumps({"benchmark": name, "constants": made, "seconds": time.monotonic() - begin}), flush=True)


def run(names: list[str], out: Path, worker_command: Sequence[str] = _WORKER, seconds: float = 60) -> dict[str, Any]:
    """Run benchmarks in processes, a new one after each error or hang of so many seconds; write the file after each.

    The file keeps the constants of other benchmarks. A process is given the names that are left, and prints a line of
    JSON for the GPU and one for each benchmark.
    """
    result: dict[str, Any] = {"gpu": "", "sms": 0, "driver": _driver(), "date": datetime.now(UTC).date().isoformat()}
    before = json.loads(out.read_text(encoding="utf-8"))["constants"] if out.exists() else {}
    kept = {key: made for key, made in before.items() if key in CONSTANTS and CONSTANTS[key].benchmark not in names}
    result |= {"constants": {key: made for key, made in kept.items() if made["value"] is not None}, "seconds": {}}
    left = [*names]
    while left:
        worker = subprocess.Popen([*worker_command, *left], stdout=subprocess.PIPE, text=True)
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=_read, args=(worker, lines), daemon=True)
        reader.start()
        while left:
            try:
                line = lines.get(timeout=seconds)
            except queue.Empty:
                line = json.dumps({"benchmark": left[0], "error": f"no answer in {seconds:g} s"})
            if not line:
                line = json.dumps({"benchmark": left[0], "error": "the process ended; its errors are above"})
            said = json.loads(line)
            if "gpu" in said:
                result |= said
                continue
            name = left.pop(0)
            if "error" in said:
                print(f"{name}: {said['error']}", flush=True)
                result["seconds"][name] = said["error"]
                break
            result["seconds"][name] = round(said["seconds"], 2)
            result["constants"] |= said["constants"]
            _write(result, out)
        worker.kill()
        worker.wait()
        reader.join()
    for key, about in CONSTANTS.items():
        if key not in result["constants"]:
            error = result["seconds"].get(about.benchmark, "not measured")
            absent = {"value": None, "unit": about.unit, "from": about.benchmark, "spread": 0.0, "error": str(error)}
            result["constants"][key] = absent
    result["constants"] = {key: result["constants"][key] for key in CONSTANTS}
    _derive(result)
    _write(result, out)
    return result


def _derive(result: dict[str, Any]) -> None:
    """Add what follows from other constants."""
    found = result["constants"]
    bandwidth, clock = (found[key]["value"] for key in ("l2.bandwidth", "clock.memory_hz"))
    if bandwidth and clock and result["sms"]:
        value = bandwidth / result["sms"] / clock
        found["l2.bandwidth_cycle"] = constant("l2.bandwidth_cycle", value)


def _read(worker: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    if worker.stdout is not None:
        with worker.stdout:
            for line in worker.stdout:
                if line.startswith("{"):
                    lines.put(line)
    lines.put("")


def _write(result: dict[str, Any], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _driver() -> str:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def table(result: dict[str, Any]) -> str:
    """Return a line for each constant."""
    lines = []
    for key, made in result["constants"].items():
        value = made["value"]
        said = made.get("error", "") if value is None else _short(value)
        doubt = f"  OUTSIDE {made['outside']}" if "outside" in made else ""
        lines.append(f"{key:28s} {said} {made['unit']} +-{made.get('spread', 0):.1%}{doubt}")
    slow = sorted(((s, n) for n, s in result["seconds"].items() if not isinstance(s, str)), reverse=True)
    total = sum(seconds for seconds, _ in slow)
    lines.append(f"{total:.0f} s; slowest: " + ", ".join(f"{name} {seconds:.1f}" for seconds, name in slow[:8]))
    lines += [f"FAILED {name}: {said}" for name, said in result["seconds"].items() if isinstance(said, str)]
    return "\n".join(lines)


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "{" + " ".join(f"{key}:{_short(item)}" for key, item in value.items()) + "}"
    return "-" if value is None else f"{value:.4g}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("constants.json"), help="the file that is written")
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of the names of benchmarks")
    parser.add_argument("--work", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work)
        return
    names = [name for name in BENCHMARKS if not options.only or name.startswith(tuple(options.only))]
    print(table(run(names, options.out)))


if __name__ == "__main__":
    main()
