"""Counts of a script's runs, as `cutepy simulate --inspect` prints them."""

from dataclasses import dataclass
from types import SimpleNamespace

from cutepy.cli.simulate import Tally


@dataclass(frozen=True)
class Site:
    conflicts: int

    def __str__(self):
        return f"{self.conflicts} conflicts"


def run_of(counts):
    return SimpleNamespace(
        launches=[SimpleNamespace(kernel="k")],
        stats={"mma": 2, "copies": 0},
        is_inspected=True,
        conflicts=lambda: [Site(count) for count in counts],
        waits=list,
        check_policy=lambda: None,
    )


def test_the_ten_lines_with_the_most_conflicts_are_printed():
    tally, lines = Tally(), []
    for counts in ([3, 0, 11, 5, 7, 9], [1, 2, 4, 6, 8, 10, 12]):
        tally.add(run_of(counts))
    tally.write(lines.append, inspect=True)
    assert lines == [
        "cutepy: simulated 2 launches of 1 kernels on the CPU; times are not a GPU's",
        "  mma 4",
        "cutepy: bank conflicts, those with the most first:",
        *(f"  {count} conflicts" for count in range(12, 2, -1)),
        "cutepy: waits at barriers: none",
    ]
