"""Slow places: mistakes planted in kernels are named at their lines, with a cost that leaving them out would save."""

import numpy as np
import pytest

from cutepy import explain, load_ptx, simulate
from cutepy.anatomy import Costs, Watch
from cutepy.predict import gpu_named
from tests.predict.kernels import ring, strided
from tests.predict.test_known_times import MISSING

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("jinja2", reason="needs jinja2, which writes the templates")
from tests.anatomy.planted import PLANTED, Planted, planted_line, slow_places

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.integration,
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "has tools"),
]


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_named_at_its_line(mistake, tmp_path):
    planted = PLANTED[mistake]
    costs, found, path = slow_places(planted, tmp_path, f"slow_{mistake.replace(' ', '_').replace('-', '_')}")
    (base,) = costs.predictions
    named = [place for place in found if place.kind == planted.kind]
    assert named, [place.kind for place in found]
    line = planted_line(path)
    if line is None:  # of the whole launch: at the kernel's first line
        assert named[0].site.lines[0].startswith(f"{path}:")
    else:
        assert f"{path}:{line}" in [place.site.lines[0] for place in named]
    assert all(0.01 * base.us <= place.us <= base.us == place.of_us for place in named)


@pytest.mark.parametrize("template", ["gemm", "rows"])
def test_templates_have_no_such_places(template, tmp_path):
    extents = (1024, 2048, 2048) if template == "gemm" else (2048, 4096)
    _, found, _ = slow_places(Planted(template, (), extents, ""), tmp_path, f"fast_{template}")
    kinds = {place.kind for place in found}
    # Two staging buffers and four stages are what the template has; more of them would save a little.
    assert not kinds & ({each.kind for each in PLANTED.values()} - {"too few stages", "early wait for stores"})


def costs_of(text, name, grid, block, *arrays):
    costs, watch = Costs("h200"), Watch()
    with simulate(time=costs, observers=[watch]):
        load_ptx(text).launch(name, grid=grid, block=block, args=arrays)
    return costs, watch


def test_a_further_stage_is_predicted_as_a_ring_that_has_it():
    x = np.zeros(132 * 32 * 4096, np.uint8)
    (one, found), (two, _) = (
        next(iter(costs_of(ring(stages, 32, 4096), "ring", 132, 64, x)[0].found.values())) for stages in (1, 2)
    )
    place = next(place for place in found if place.kind == "too few stages")
    less = float(place.said.partition("predicted with 2: ")[2].split()[0])
    assert one.us - less == pytest.approx(two.us, rel=0.05)


def test_conflicts_cost_what_an_access_without_them_would_save():
    texts = [strided(words).replace(";\n    ld.volatile", "; ld.volatile") for words in (8, 1)]  # of one line
    (eight, found), (free, none) = (
        next(iter(costs_of(text, "strided", 132, 512, np.zeros(64, np.uint8))[0].found.values())) for text in texts
    )
    conflicts = [place for place in found if place.kind == "bank conflicts"]
    assert "takes 1081344 wavefronts, where 135168 would do" in conflicts[0].said
    assert eight.us - conflicts[0].us == pytest.approx(free.us, rel=0.1)
    assert not [place for place in none if place.kind == "bank conflicts"]


def test_an_explanation_tells_slow_places():
    costs, watch = costs_of(ring(1, 32, 4096), "ring", 132, 64, np.zeros(132 * 32 * 4096, np.uint8))
    text = explain(watch, costs=costs).text(width=None)
    assert "Slow places: of " in text
    assert "too few stages: " in text
    (kernel,) = explain(watch, costs=costs).json()["kernels"]
    assert kernel["slow_places"][0]["us"] > 0
    assert gpu_named("h200").name == kernel["predicted_gpu"]
    assert "Slow places" not in explain(watch).text(width=None)


def test_kernels_of_other_gpus_are_not_predicted():
    text = ".version 8.7\n.target sm_100a\n.address_size 64\n.visible .entry k() { ret; }"
    costs, watch = costs_of(text, "k", 1, 32)
    assert "Slow places: not predicted: times are predicted of kernels for Hopper only" in explain(
        watch, costs=costs, assembler=False
    ).text(width=None)


def test_a_search_that_takes_too_long_says_so(monkeypatch):
    monkeypatch.setattr("cutepy.anatomy.costs.MOST_SECONDS", 0.0)
    costs, watch = costs_of(ring(1, 4, 4096), "ring", 132, 64, np.zeros(132 * 4 * 4096, np.uint8))
    assert "places may be missing" in explain(watch, costs=costs, assembler=False).text(width=None)
