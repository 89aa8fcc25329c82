"""Histories of saved CTAs."""

import numpy as np

from cutepy.sim.inspect.history import SavedCta


def test_a_saved_cta_is_named_without_its_events():
    cta = SavedCta((1, 2, 3), [{"kind": "step"}], [{"ptx": "ret;"}], {0: "full"}, True, 64, np.zeros(64), None)
    assert repr(cta) == "SavedCta(cta=(1, 2, 3), followed=True, smem_bytes=64)"
