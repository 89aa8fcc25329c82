"""Walk of an operand through a product: each room that receives it hands it to the next, and none receives it twice."""

import sys
from itertools import groupby
from pathlib import Path

import pytest
import torch

import cutepy
from cutepy.host.launches import Launches
from cutepy.ops import gemm, multiply

ROOT = Path(cutepy.__file__).resolve().parents[1]
ROOMS = ["ops", "kernels", "host", "runtime", "frontends", "sim"]


def room_of(file):
    """Return the folder of `cutepy`, or `kernels` or `layouts`; None for other code."""
    path = Path(file).resolve()
    parts = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ("",)
    return parts[1] if parts[0] == "cutepy" else parts[0] if parts[0] in ("kernels", "layouts") else None


def walk(call, tensor):
    """List the rooms whose functions receive a tensor, or a sequence with it, as they do."""
    found, rooms = [], {}

    def receives(value):
        return value is tensor or (isinstance(value, tuple | list) and any(map(receives, value)))

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename not in rooms:
            rooms[code.co_filename] = room_of(code.co_filename)
        if event != "call" or rooms[code.co_filename] is None:
            return
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)
        if any(receives(frame.f_locals.get(name)) for name in code.co_varnames[:count]):
            found.append(rooms[code.co_filename])

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [room for room, _ in groupby(found)]


@pytest.mark.integration
@pytest.mark.parametrize("into", [False, True])
def test_no_room_receives_an_operand_twice(into, monkeypatch):
    monkeypatch.setattr(multiply, "_launches", Launches())
    a, b = torch.randn(64, 64).bfloat16(), torch.randn(32, 64).bfloat16()
    out = torch.empty(64, 32).bfloat16() if into else None
    with cutepy.simulate():
        first = walk(lambda: gemm(a, b, out=out), a)
        assert walk(lambda: gemm(a, b, out=out), a) == ROOMS
    # A check of overlaps, made once the kernel is found, stands before the launch.
    assert first == (["ops", "kernels", *ROOMS] if into else ROOMS)
