"""Tracebacks of scripts that a command runs: the script's frames, and of an error's causes all that is known."""

import re

import pytest

from cutepy.cli import simulate
from cutepy.sim.errors import SimulationError

SCRIPT = """
def own(inner):
    try:
        inner()
    except ValueError as error:
        {raised}
own(inner)
"""
RAISES = {
    "cause": 'raise KeyError("outer") from error',
    "context": 'raise KeyError("outer")',
    "suppressed": 'raise KeyError("outer") from None',
    "library": "raise KeyError('outer') from made",
}


def inner():
    raise ValueError("inner")


def made_in_a_library():
    """Give an error that no frame of the script is in."""
    try:
        inner()
    except ValueError as error:
        return error


def caught(text, kind=Exception, **given):
    with pytest.raises(kind) as found:
        exec(compile(text, "script.py", "exec"), {"inner": inner, **given})
    return found.value


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("cause", [["own", "inner"], ["<module>", "own"]]),
        ("context", [["own", "inner"], ["<module>", "own"]]),
        ("suppressed", [["<module>", "own"]]),
        ("library", [["made_in_a_library", "inner"], ["<module>", "own"]]),
    ],
)
def test_frames_before_the_script_are_left_out(name, frames):
    error = caught(SCRIPT.format(raised=RAISES[name]), KeyError, made=made_in_a_library())
    text = simulate._traceback(error, "script.py")
    parts = re.split(r"(?m)^Traceback", text)[1:]
    assert [re.findall(r"(?m)^  File .*, in (\S+)", part) for part in parts] == frames
    assert text.rstrip().endswith("KeyError: 'outer'")


@pytest.mark.parametrize(
    ("kind", "names"), [(SimulationError, ["<module>", "own"]), (ValueError, ["<module>", "own", "parts_of"])]
)
def test_of_an_error_of_the_simulator_no_library_is_shown(kind, names):
    def fail(*_):
        raise kind("wrong")

    text = "from cutepy.device.rules import parts_of\ndef own():\n    parts_of(16, fail)\nown()\n"
    found = simulate._traceback(caught(text, kind, fail=fail), "script.py")
    frames = re.findall(r"(?m)^  File .*, in (\S+)", found)
    assert [name for name in frames if name != "fail"] == names
