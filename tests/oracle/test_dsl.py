"""The CuTe DSL, asked the same questions while it traces, answers what cutepy.layouts answers."""

from collections import Counter

import pytest

from tests.oracle.compare import ours
from tests.oracle.cpp import Case, Rejected
from tests.oracle.dsl import agree, answer, offers
from tests.oracle.questions import questions

_CASES = 400


@pytest.mark.dsl
def test_the_dsl_agrees(monkeypatch: pytest.MonkeyPatch):
    """Fresh cases that both accept: one trace, one text each."""
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    drawn = [(op, operands) for op, operands in questions(2026, _CASES) if offers(op, operands)]
    expected = [(case, ours(Case(*case))) for case in drawn]
    accepted = [(case, value) for case, value in expected if not isinstance(value, Rejected)]
    answers = answer([case for case, _ in accepted])
    wrong = [
        f"{case}: the DSL says {theirs}, cutepy {value}"
        for (case, value), theirs in zip(accepted, answers, strict=True)
        if not agree(theirs, value)
    ]
    assert not wrong, "\n".join(wrong[:20])
    assert len(Counter(op.split("<")[0] for (op, _), _ in accepted)) > 20


def test_disagreement_is_seen():
    """Only the strides of size-1 modes are free."""
    assert agree("(4,1):(1,0)", "(4,1):(1,7)")
    assert not agree("(4,1):(1,0)", "(4,1):(2,0)")
    assert not agree("TypeError: no", "4:1")
    assert agree(4, 4)
    assert not agree(4, 5)
