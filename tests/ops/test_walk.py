"""Walk of an operand through a product: each room that receives it hands it to the next, and none receives it twice."""

import sys
from itertools import groupby
from pathlib import Path

import pytest
import torch

import cutepy
from cutepy.host.launches import Launches
from cutepy.kernels.grouped import op as grouped_op
from cutepy.ops import gemm, grouped_gemm, multiply, quantise, scaled_gemm, scaled_grouped_gemm

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


@cutepy.epilogue
def _twice(acc):
    return 2 * acc


def _dense(**how):
    a, b = torch.randn(64, 64).bfloat16(), torch.randn(32, 64).bfloat16()
    return a, lambda: gemm(a, b, **how)


def _misaligned(**how):
    a, b = torch.randn(64 * 64 + 1).bfloat16()[1:].view(64, 64), torch.randn(32, 64).bfloat16()
    return a, lambda: gemm(a, b, **how)


def _grouped(**how):
    a, b = torch.randn(64, 64).bfloat16(), torch.randn(2, 32, 64).bfloat16()
    return a, lambda: grouped_gemm(a, b, offs=torch.tensor([16, 64], dtype=torch.int32), **how)


def _scaled(**how):
    (a, of_a), (b, of_b) = quantise(torch.randn(64, 256)), quantise(torch.randn(32, 256), (128, 128))
    return a, lambda: scaled_gemm(a, b, of_a, of_b, **how)


def _scaled_groups(**how):
    (a, of_a), weights = quantise(torch.randn(64, 256)), [quantise(torch.randn(32, 256), (128, 128)) for _ in "ab"]
    b, of_b = (torch.stack(each) for each in zip(*weights, strict=True))
    ends = torch.tensor([16, 64], dtype=torch.int32)
    return a, lambda: scaled_grouped_gemm(a, b, of_a, of_b, offs=ends, **how)


OUT = torch.empty(64, 32).bfloat16()
FORMS = {
    "plain": lambda: _dense(),
    "c, bias": lambda: _dense(c=torch.randn(64, 32).bfloat16(), bias=torch.randn(32)),
    "out": lambda: _dense(out=OUT),
    "bias, out": lambda: _dense(bias=torch.randn(32), out=OUT),
    "epilogue": lambda: _dense(epilogue=_twice),
    "epilogue, out": lambda: _dense(epilogue=_twice, out=OUT),
    "misaligned": lambda: _misaligned(),
    "misaligned, out": lambda: _misaligned(out=OUT),
    "scaled": lambda: _scaled(),
    "scaled, out": lambda: _scaled(out=OUT),
    "grouped": lambda: _grouped(),
    "grouped, epilogue": lambda: _grouped(epilogue=_twice),
    "grouped, out": lambda: _grouped(out=OUT),
    "scaled groups": lambda: _scaled_groups(),
}


@pytest.mark.integration
@pytest.mark.parametrize("form", FORMS)
def test_no_room_receives_an_operand_twice(form, monkeypatch):
    monkeypatch.setattr(multiply, "_launches", Launches())
    monkeypatch.setattr(grouped_op, "_routes", Launches())
    a, product = FORMS[form]()
    with cutepy.simulate():
        first, warm = walk(product, a), walk(product, a)
    # TMA can't reach a misaligned operand: `kernels` hands on a copy. An operation that goes by way of torch's
    # dispatcher compares the memory of its results with that of its inputs at the end.
    expected = ROOMS[:2] if "misaligned" in form else [*ROOMS, "ops"] if "group" in form else ROOMS
    assert first == warm == expected


@pytest.mark.parametrize("form", [form for form in FORMS if "group" not in form])
def test_no_room_but_ops_receives_an_operand_of_the_cpu(form, monkeypatch):
    monkeypatch.setattr(multiply, "_launches", Launches())
    a, product = FORMS[form]()
    assert walk(product, a) == walk(product, a) == ["ops"]
