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


TWO_RINGS = """def kernel(first, second):
    first.put(mbarrier_init(empty, 1))
    second.put(mbarrier_init(empty, 1))
    for ring in (first, second):
        load(ring.acquire())
"""


def two_rings(file, count=32, sizes=(4096, 1024)):
    """Write a kernel whose warp 0 loads into two rings of one stage, at one line, and whose warp 1 releases both."""
    made, produced, released = [], [], []
    for n, size in enumerate(sizes):
        made.append(f".loc 1 {2 + n} 0\nmbarrier.init.shared.b64 [empty+{8 * n}], 1;")
        made.append(f".loc 1 1 0\nmbarrier.init.shared.b64 [full+{8 * n}], 1;")
        produced.append(f""".loc 1 5 0
FREE{n}: mbarrier.try_wait.parity.shared.b64 %q, [empty+{8 * n}], %r8; @!%q bra FREE{n};
mbarrier.arrive.expect_tx.shared.b64 _, [full+{8 * n}], {size};
mov.u32 %r1, tile{n}; mov.u32 %r2, full; add.u32 %r2, %r2, {8 * n};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], {size}, [%r2];""")
        released.append(f"""FULL{n}: mbarrier.try_wait.parity.shared.b64 %q, [full+{8 * n}], %r7; @!%q bra FULL{n};
mbarrier.arrive.shared.b64 _, [empty+{8 * n}];""")
    tiles = "".join(f".shared .align 128 .b8 tile{n}[{size}];\n" for n, size in enumerate(sizes))
    go_on = "xor.b32 %r7, %r7, 1; add.u32 %r4, %r4, 1; setp.lt.u32 %q, %r4, {count}; @%q bra {to};"
    lines = "\n".join
    return f""".version 8.7
.target sm_90a
.address_size 64
.file 1 "{file}"
.visible .entry two_rings(.param .u64 x) .maxntid 64
{{
.reg .pred %p; .reg .pred %q; .reg .b32 %r<16>; .reg .b64 %d<4>;
{tiles}.shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2];
ld.param.u64 %d0, [x]; mov.u32 %r0, %tid.x; setp.ne.u32 %p, %r0, 0; @%p bra READY;
{lines(made)}
fence.proxy.async.shared::cta;
READY: bar.sync 0;
mov.u32 %r4, 0; mov.u32 %r7, 0;
setp.eq.u32 %p, %r0, 32; @%p bra CONSUME;
setp.ne.u32 %p, %r0, 0; @%p bra DONE;
PRODUCE: xor.b32 %r8, %r7, 1;
{lines(produced)}
.loc 1 1 0
{go_on.format(count=count, to="PRODUCE")}
bra DONE;
CONSUME:
{lines(released)}
{go_on.format(count=count, to="CONSUME")}
DONE: bar.sync 0;
ret;
}}
"""


def test_rings_of_one_line_are_told_by_themselves(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(TWO_RINGS)
    costs, _ = costs_of(two_rings(file), "two_rings", 132, 64, np.zeros(4096, np.uint8))
    ((_, found),) = costs.found.values()
    places = [place for place in found if place.kind == "too few stages"]
    assert [place.site.lines[0] for place in places] == [f"{file}:5"]  # more of the smaller ring would save nothing
    assert "one of 1 stage is free" in places[0].said
    assert " more of 4096 bytes fit" in places[0].remedy


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
