"""Predicted times of products by their configurations."""

import pytest

from cutepy.suites import gemm_prediction


def test_the_reason_of_failed_predictions_is_told_once(monkeypatch):
    def fail(problem, candidate, gpu):
        raise ValueError("no model of that")

    monkeypatch.setattr(gemm_prediction, "predict_gemm", fail)
    said = "2 of 2 configurations are timed without a prediction: ValueError: no model of that"
    with pytest.warns(UserWarning, match=said) as told:
        assert gemm_prediction.predicted_us([({}, {})] * 2, "h200", 1) == [None, None]
    assert len(told) == 1
