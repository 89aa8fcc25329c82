"""The script for a GPU: its patterns are ones that the hardware takes, and ncu's table is read."""

import subprocess
import sys
from pathlib import Path

from tests.layouts import banks_hardware as script
from tests.layouts.banks import words
from tests.messages import refuses


def test_patterns_are_repeatable_aligned_and_of_every_instruction():
    given = script.patterns(0, 128)
    assert given == script.patterns(0, 128) != script.patterns(1, 128)
    assert {pattern.instruction.ptx for pattern in given} == {one.ptx for one in script.INSTRUCTIONS}
    for pattern in given:
        size = pattern.instruction.size
        active = [address for address in pattern.addresses if address is not None]
        assert active
        assert all(a % size == 0 and 0 <= a <= script.TILE_BYTES - size for a in active)
        assert pattern.expected == words.wavefronts(pattern.instruction.kind, size, pattern.addresses)
        assert len(pattern.lanes()) == 32


def test_patterns_tell_rules_apart():
    """Some loads merge, some stores would if they were loads, some conflict."""
    given = script.patterns(0, 128)
    loads = [p for p in given if p.instruction.kind == "ld" and p.instruction.size > 4]
    stores = [p for p in given if p.instruction.kind == "st" and p.instruction.size > 4]
    assert sum(words.wavefronts("st", p.instruction.size, p.addresses) != p.expected for p in loads) >= 3
    assert sum(words.wavefronts("ld", p.instruction.size, p.addresses) != p.expected for p in stores) >= 3
    # Were equal rows of a matrix served one after another, some would take more; were equal lanes of atomics not, less.
    matrices = [p for p in given if "matrix" in p.instruction.kind]
    assert sum(words.wavefronts("atom", 16, p.addresses) != p.expected for p in matrices) >= 3
    atomics = [p for p in given if p.instruction.kind == "atom"]
    assert sum(words.wavefronts("st", p.instruction.size, p.addresses) != p.expected for p in atomics) >= 3


def test_ncu_s_table_is_read():
    given = script.patterns(0, len(script.INSTRUCTIONS))
    names = [f"{script.COUNTER}{suffix}.sum" for suffix in ("", "_op_ld", "_op_st")]
    lines = ["==PROF== noise", ",".join(f'"{name}"' for name in ["ID", "Kernel Name", *names]), '"","","","",""']
    for i, pattern in enumerate(given):
        own = {"ld": [9, pattern.expected, 0], "st": [9, 0, pattern.expected]}.get(pattern.instruction.kind[:2])
        counts = own or [pattern.expected + 1, 0, 0]
        lines.append(",".join(f'"{x}"' for x in [i, pattern.instruction.kernel, *counts]))
    counts = script.measured("\n".join(lines), given)
    assert counts == [pattern.expected for pattern in given]
    assert script.report(given, counts, every=False) == 0
    assert script.report(given, [0.0] * len(given), every=False) == len(given)
    with refuses(ValueError):
        script.measured("", given)
    with refuses(ValueError):
        script.measured("\n".join(lines[:-1]), given)


def test_the_expectations_print_without_a_gpu():
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "tests.layouts.banks_hardware", "--expected", "--count", "40"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "40 patterns, 0 differ"
