"""Results of a GPU as tables of the documentation."""

from __future__ import annotations

import json
import re
from typing import Any

_WAY = re.compile(r"^(.+?): (\d+) launches, (\d+) as simulated, (\d+) as in another order(?:; (.*))? \([\d.]+ s\)$")


def kinds_table(results: dict[str, Any]) -> str:
    """Write a row for each mistake: its kind, what the reproducer showed, and the witness in the simulator."""
    rows = ["| hazard | mistake | wrong of 100 launches | in the simulator |", "| --- | --- | --- | --- |"]
    for one in sorted(results["results"], key=lambda one: (not one["confirmed"], one["kind"])):
        shown = "; ".join(filter(None, map(told_of, one["mistake"]["ways"]))) or "all, as simulated"
        witness = one["witness"].partition(": ")[2]
        played = "nothing changes" if witness.startswith("nothing changes") else _outcome(witness)
        rows.append(f"| `{one['kind']}` | {one['name']} | {shown if one['confirmed'] else 'not shown'} | {played} |")
    return "\n".join(rows)


def told_of(way: str) -> str:
    """Say what a line of a script says, shortly, and nothing where all launches were as simulated.

    Examples
    --------
    >>> told_of("as it is: 100 launches, 98 as simulated, 2 as in another order; 4 bytes, first at 0 (0.8 s)")
    'as it is: 2'
    >>> told_of("delayed: 100 launches, 100 as simulated, 0 as in another order (1.0 s)")
    ''
    >>> told_of("delayed: 0 launches, 0 as simulated, 0 as in another order; hang: no end after 3 s (4 s)")
    'delayed: hang'
    """
    found = _WAY.match(way)
    if found is None:
        return way
    name, launches, right, _, rest = found.groups()
    ended = re.search(r"\b(hang|error): (.*)$", rest or "")
    if ended:
        return f"{name}: {ended[1]}" + ("" if ended[1] == "hang" else f" ({ended[2].rpartition(': ')[2]})")
    wrong = int(launches) - int(right)
    return f"{name}: {wrong}" if wrong else ""


def _outcome(witness: str) -> str:
    return next((kind for kind in ("values", "hang", "error") if f": {kind}: " in witness), witness)


def scopes_table(results: dict[str, Any]) -> str:
    """Write a row for each variant of scopes: how many words that were read were old."""
    rows = ["| data, release, acquire | rounds | old words | flags not seen |", "| --- | --- | --- | --- |"]
    for line in results["scopes"]["lines"]:
        for one in json.loads(line) if line.startswith("[{") else ():
            told = [
                f"{one[name]:,}" if name in one else one["ended"] for name in ("rounds", "old_words", "flags_not_seen")
            ]
            rows.append(f"| {one['name']} | {' | '.join(told)} |")
    return "\n".join(rows)
