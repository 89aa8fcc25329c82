"""The simulator beside Triton's interpreter, and the kernel of plain threads, at sizes that take no time."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.dsl

pytest.importorskip("cutlass")

from tests.laboratory import sim  # noqa: E402


def test_plain_threads_are_timed_in_three_ways(monkeypatch):
    def in_turns(ways, rounds):
        for way in ways.values():
            way()
        return dict(zip(ways, (0.1, 0.5, 1.5), strict=True))

    monkeypatch.setattr(sim, "in_turns", in_turns)
    figures = sim.plain_threads((4, 3), 1)
    assert all(figure.right for figure in figures)
    assert [figure.relation for figure in figures] == [
        "in machine code; median of 1",
        "without machine code, 5.0 times as long",
        "15.0 times as long, 3.0 times as what is watched",
    ]


@pytest.mark.integration
def test_triton_s_interpreter_computes_the_same():
    """In a process of its own: Triton decides on import whether it interprets."""
    pytest.importorskip("triton")
    code = (
        "from tests.laboratory.sim import beside_triton; assert all(f.right for f in beside_triton((128, 128, 64), 1))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
