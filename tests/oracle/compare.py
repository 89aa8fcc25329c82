"""Put the same questions to an oracle and to `cutepy.layouts`, and list where they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutepy.layouts import LayoutError
from tests.golden.calls import agrees, call
from tests.oracle.cpp import Case, CppOracle, Rejected


@dataclass(frozen=True)
class Disagreement:
    """One case on which the oracle and cutepy differ."""

    case: Case
    expected: Any
    got: Any

    def __str__(self) -> str:
        operands = ", ".join(map(str, self.case.operands))
        return f"{self.case.op}({operands})\n    expected {self.expected}\n    got      {self.got}"


def ours(case: Case) -> Any:
    """cutepy's answer: a value, the LayoutError it raises, or a text naming any other exception."""
    try:
        return call(case.op, case.operands)
    except LayoutError as error:
        return Rejected(str(error))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def disagreements(oracle: CppOracle, cases: Sequence[Case]) -> list[Disagreement]:
    """Every case whose value differs, or which only one side accepts."""
    answers = [ours(case) for case in cases]
    # Cases that cutepy refuses go last: a batch without refusals needs a single compilation.
    order = sorted(range(len(cases)), key=lambda i: isinstance(answers[i], Rejected))
    expected = dict(zip(order, oracle.answer([cases[i] for i in order]), strict=True))
    found = []
    for i, case in enumerate(cases):
        if isinstance(expected[i], Rejected) and expected[i].unsupported:
            continue
        both_refuse = isinstance(expected[i], Rejected) and isinstance(answers[i], Rejected)
        if not both_refuse and not agrees(answers[i], expected[i]):
            found.append(Disagreement(case, expected[i], answers[i]))
    return found
