"""Other people's kernels in the simulator: what passes, what is wrong, and what is refused, for which reason?

    python -m tests.sim.foreign FOLDER... ["SCRIPT ARGUMENT..."]...

Runs the pytest files, notebooks and scripts of the folders unmodified, each in a process of its own, with the device
`cuda` served from host memory and every launch simulated: QuACK's and FlashAttention's tests, NVIDIA's examples,
Triton's tutorials. Nothing of theirs is kept here: the sources are yours to bring. They import from all the
folders, and what else they need from PYTHONPATH: FlashAttention's tests need QuACK's folder beside its own.

Of a test with many parameter sets, `--sets` are run, drawn at random by `--seed` from those without an integer above
`--extent`; sets that skip themselves don't count. What scripts are called with, and what is for other hardware and not
tried, stands in `catalogue.py`; `--arch` names the architecture, and `blackwell.py` has the calls for Blackwell.

What becomes of each case is written to `--record`, a line of JSON each, as it ends: the next run goes on from there.
`--again wrong,refused` repeats the cases that ended so. `--write tests/sim/foreign/results.md` puts the table there.

With `--schedules 100` each case is sanitized as well, and so many seeded schedules are played of each kernel that it
launches, the first time it does with a grid; another table has the hazards, the schedules that differ, and the
certificates, and the exit code tells whether any was found. `--apart` gives each test function a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.sim.foreign import catalogue, table
from tests.sim.foreign.processes import Choice, examine
from tests.sim.foreign.sources import Source, sources


def _read(record: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what is recorded of each case; of several lines, the last counts."""
    found = map(json.loads, record.read_text().splitlines()) if record.exists() else ()
    return {(each["source"], each["case"]): each for each in found}


def main() -> int:
    """Run what is given; the exit code tells whether any result was wrong."""
    default = Choice()
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.foreign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="*", help="folders, and scripts with their arguments, each as one word")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes at a time (1)")
    parser.add_argument("-k", "--only", default="", help="only sources with this in their name")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="limit of each case (%(default).0f)")
    parser.add_argument("--sets", type=int, default=default.sets, help="parameter sets of each test (%(default)s)")
    parser.add_argument("--extent", type=int, default=default.extent, help="largest integer in a set (%(default)s)")
    parser.add_argument("--seed", type=int, default=default.seed, help="of the sets that are drawn (%(default)s)")
    parser.add_argument("--schedules", type=int, help="sanitize, and play so many schedules of each kernel (0: none)")
    parser.add_argument("--arch", choices=catalogue.ARCHS, default=default.arch, help="of the GPU (%(default)s)")
    parser.add_argument("--apart", action="store_true", help="each test function is a source of its own")
    parser.add_argument("--record", type=Path, default=Path("build/foreign.jsonl"), help="(%(default)s)")
    parser.add_argument("--again", default="", help="outcomes, parted by commas, whose cases are run once more")
    parser.add_argument("--write", type=Path, help="a page with marks, between which the table is put")
    given = parser.parse_args()
    called = partial(catalogue.calls, arch=given.arch)
    found = [source for text in given.sources for source in sources(text, called)]
    folders = tuple(sorted({source.root for source in found}))
    found = [one for source in found for one in (source.functions() if given.apart else [source])]
    choice = Choice(given.sets, given.extent, given.seed, given.seconds, folders, given.schedules, given.arch)

    given.record.parent.mkdir(parents=True, exist_ok=True)
    again = set(given.again.split(","))
    known = {key: fact for key, fact in _read(given.record).items() if fact["outcome"] not in again}
    writing = threading.Lock()
    cores: queue.Queue[int | None] = queue.Queue()  # of which each of several jobs keeps to one
    for job in range(given.jobs):
        cores.put(sorted(os.sched_getaffinity(0))[job % len(os.sched_getaffinity(0))])

    with given.record.open("a", buffering=1) as file:

        def write(fact: dict[str, Any]) -> None:
            with writing:
                file.write(json.dumps(fact) + "\n")
                print(f"{fact['outcome']:8} {fact['seconds']:6} s  {fact['case']}  {fact['reason']}", flush=True)

        def run(source: Source) -> None:
            done = frozenset(case for name, case in known if name == source.name)
            if source.kind == "pytest" or source.name not in done:
                core = cores.get() if given.jobs > 1 else None
                try:
                    examine(source, choice, done, write, core)
                finally:
                    cores.put(core)

        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(run, [source for source in found if given.only in source.name]))

    records = [fact for _, fact in sorted(_read(given.record).items())]
    if given.write is not None:
        table.write(given.write, records)
    print("\n".join(table.lines(records)))
    if given.schedules is not None:
        print("", *table.sanitized(records), sep="\n")
        return int(any(record.get("hazards") or record.get("differ") for record in records))
    return int(Counter(record["outcome"] for record in records)["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
