"""Run the scripts of this folder on a GPU: python run_all.py. It needs an NVIDIA driver, and nothing else.

Each mistake has a script, and one for the kernel that is mended, with the same delays. A mistake is confirmed if it
comes to something else than the simulator, or to what the simulator says is wrong, and mended does not. Results are
printed, and written to ``$OUT/results.json``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LONGEST_S, SCRIPT_S = 150.0, 60.0
"""After which time no script is begun, and how long one may take."""

NOTHING = "nothing differs"
_AFTER = re.compile(r'"after": "(.*)"')
_START = time.monotonic()


def run(name: str, *arguments: str, longest_s: float = SCRIPT_S) -> dict[str, Any]:
    """Run a script in a process group of its own, and return what it prints."""
    if time.monotonic() - _START > LONGEST_S:
        return {"verdict": "not run", "lines": [], "seconds": 0.0}
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, str(HERE / name), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=longest_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
    lines = out.splitlines()
    verdict = next((line.partition(": ")[2] for line in lines if line.startswith("VERDICT ")), "no verdict")
    ways = [line.strip() for line in lines if line.startswith("  ") and "launches" in line]
    return {"verdict": verdict, "ways": ways, "lines": lines[-20:], "seconds": round(time.monotonic() - start, 1)}


def judged(case: dict[str, str]) -> dict[str, Any]:
    """Run a mistake, and what mends it."""
    wrong, right = run(f"{case['script']}.py"), run(f"{case['script']}_mended.py")
    texts = [(HERE / f"{case['script']}{end}.py").read_text() for end in ("", "_mended")]
    left = [sorted(_AFTER.findall(text)) for text in texts]
    shown = ""
    if right["verdict"] == NOTHING and wrong["verdict"] not in (NOTHING, "not run", "no verdict"):
        shown = wrong["verdict"]
    elif right["verdict"] == wrong["verdict"] == NOTHING and case["shown"] == "as simulated":
        shown = "wrong as simulated, in every launch" if left[0] != left[1] else ""
    result = {**case, "confirmed": bool(shown), "how": shown, "mistake": wrong, "mended": right}
    print(
        f"{'CONFIRMED' if shown else 'no':9} {case['kind']:24} {shown or wrong['verdict']} [mended: {right['verdict']}]"
    )
    sys.stdout.flush()
    return result


def main() -> None:
    """Run all: first what ends, then what may hang, then the scopes."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except OSError:
        gpu = "unknown"
    print(gpu, time.strftime("%Y-%m-%d", time.gmtime()), flush=True)
    cases = json.loads((HERE / "cases.json").read_text())
    results: list[dict[str, Any]] = []
    for at_once, hangs in ((4, False), (2, True)):
        with ThreadPoolExecutor(at_once) as pool:
            results += pool.map(judged, [case for case in cases if (case["shown"] in ("hang", "error")) == hangs])
    scopes = run("scopes.py", "1", longest_s=60.0)
    print("\n".join(line for line in scopes["lines"] if not line.startswith("[")))
    found = sorted({result["kind"] for result in results if result["confirmed"]})
    print(f"{len(found)} kinds confirmed: {', '.join(found)} ({time.monotonic() - _START:.0f} s)")
    path = Path(os.environ.get("OUT", ".")) / "results.json"
    path.write_text(json.dumps({"gpu": gpu, "results": results, "scopes": scopes}, indent=1))


if __name__ == "__main__":
    main()
