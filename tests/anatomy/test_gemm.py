"""The GEMM, simulated: each fact of its explanation against its PTX, its arguments, and events counted here."""

import json
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from cutepy.anatomy import Watch, explain
from cutepy.frontends.torch_device import serve_cuda
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm
from cutepy.sim import MbarrierCompleteTx, MbarrierExpectTx, MbarrierInit, Observer
from tests.anatomy.kernels import opcodes

pytestmark = pytest.mark.dsl

M, N, K = 192, 128, 192
HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
CONFIG = GemmConfig(signature=HALF, tile_m=64, tile_n=32, tile_k=128)


class Counting(Observer):
    """An observer that counts a run's events in plain numbers."""

    def __init__(self):
        self.words = {"a": set(), "b": set()}
        self.boxes, self.shared, self.inits, self.bytes, self.waits = Counter(), {}, {}, Counter(), Counter()
        self.launches = []

    def on_launch(self, launch):
        self.launches.append(launch)

    def on_wgmma(self, event):
        for name in "ab":
            self.words[name].update(int(word) for word in getattr(event, name).flat)

    def on_tma(self, event):
        dims = event.tensor_map.dims
        self.boxes[event.operation, dims] += 1
        self.shared.setdefault((event.operation, dims), set()).add(event.shared_address)

    def on_barrier(self, event):
        if isinstance(event, MbarrierInit):
            self.inits.setdefault(event.barrier.address, set()).update(event.arrivals)
        if isinstance(event, (MbarrierExpectTx, MbarrierCompleteTx)):
            self.bytes[event.operation] += sum(event.size_bytes)


class Run:
    def __init__(self, cache):
        self.cache = cache
        self.watch, self.counting = Watch(), Counting()
        generator = torch.Generator().manual_seed(0)
        a = torch.randn(M, K, generator=generator).half()
        b = torch.randn(N, K, generator=generator).half()
        with serve_cuda(observers=[self.watch, self.counting]) as run:
            d = torch.empty((M, N), dtype=torch.float16, device="cuda")
            compile_gemm(CONFIG)(a.cuda(), b.cuda(), None, d, 132, None)
        self.stats = run.stats
        self.explanation = explain(self.watch, assembler=False, name="gemm")
        (self.kernel,) = self.explanation.kernels
        (launch,) = self.counting.launches
        self.ptx, self.launch = launch.ptx, launch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("CUTEPY_CACHE_DIR", str(cache))
        return Run(cache)


def test_mmas_are_those_of_the_ptx_and_of_the_run(run):
    written = [opcode for opcode in opcodes(run.ptx) if opcode.startswith("wgmma.mma_async")]
    assert sum(mma.instructions for mma in run.kernel.mmas) == len(written) > 0
    assert {mma.opcode for mma in run.kernel.mmas} == set(written)
    shape = re.search(r"\.m(\d+)n(\d+)k(\d+)\.f32\.f16\.f16$", written[0])
    assert {mma.shape_mnk for mma in run.kernel.mmas} == {tuple(map(int, shape.groups()))}
    assert sum(mma.issued for mma in run.kernel.mmas) == run.stats["wgmma"]


def test_descriptors_are_those_that_were_issued(run):
    for name in "ab":
        told = {word for mma in run.kernel.mmas for word in getattr(mma, name).descriptors}
        assert told == run.counting.words[name]
        operand = getattr(run.kernel.mmas[0], name)
        (word, *_) = operand.descriptors
        assert operand.complete
        assert operand.lbo == (word >> 16 & (1 << 14) - 1) * 16
        assert operand.sbo == (word >> 32 & (1 << 14) - 1) * 16
        assert operand.swizzle == {1: "SW128", 2: "SW64", 3: "SW32", 0: "INTER"}[word >> 62]
        assert operand.start_addresses == tuple(sorted((word % (1 << 14)) * 16 for word in told))


def test_copies_have_the_tensors_that_were_passed(run):
    by_dims = {(copy.operation, copy.tensor_map.dims): copy for copy in run.kernel.copies}
    assert set(by_dims) == {("load", (K, M)), ("load", (K, N)), ("store", (N, M))}
    for key, copy in by_dims.items():
        dims, box = copy.tensor_map.dims, copy.tensor_map.box
        assert copy.tensor_map.strides_bytes == (2 * dims[0],)
        assert copy.bytes == 2 * box[0] * box[1]
        assert copy.issued == run.counting.boxes[key]
        assert set(copy.shared_addresses) == run.counting.shared[key]
    assert sum(copy.issued for copy in run.kernel.copies) == run.stats["tma"]
    written = [o for o in opcodes(run.ptx) if re.match(r"cp\.async\.bulk\.tensor", o)]
    assert sum(copy.instructions for copy in run.kernel.copies) == len(written)
    words = [copy.parameter for copy in by_dims.values()]
    sizes = [len(data) for data in run.launch.parameters.values()]
    assert len(set(words)) == 3
    assert all(sizes[int(word.removeprefix("parameter "))] == 128 for word in words)


def test_barriers_have_names_counts_and_parties(run):
    rings = {barrier.name: barrier for barrier in run.kernel.barriers if barrier.kind == "mbarrier"}
    assert {"ring.full", "ring.empty"} <= set(rings)
    for barrier in rings.values():
        for address in barrier.addresses:
            assert run.counting.inits[address] == {barrier.arrivals}
    assert sum(len(barrier.addresses) for barrier in rings.values()) == len(run.counting.inits)
    full = rings["ring.full"]
    (expects,) = full.of("expect_tx")
    loads = [copy.bytes for copy in run.kernel.copies if copy.operation == "load"]
    boxes = Counter()
    for copy in run.kernel.copies:
        if copy.operation == "load":
            boxes[copy.bytes] += copy.issued
    assert sum(n * b for n, b in boxes.items()) == run.counting.bytes["complete_tx"] == run.counting.bytes["expect_tx"]
    assert len(expects.amounts) == 1
    assert expects.amounts[0] * expects.times == run.counting.bytes["expect_tx"]
    assert expects.amounts[0] >= max(loads)
    assert {copy.barriers for copy in run.kernel.copies if copy.operation == "load"} == {("ring.full",)}
    assert all("pipeline.py" in line for party in full.of("wait") for line in party.site.lines[1:])


def test_the_map_covers_shared_memory_once(run):
    regions = run.kernel.regions
    assert regions[0].start == 0
    for before, after in pairwise(regions):
        assert 0 <= after.start - (before.start + before.bytes) <= 128
    assert run.launch.smem_bytes - 128 <= regions[-1].start + regions[-1].bytes <= run.launch.smem_bytes
    (mma, *_) = run.kernel.mmas
    for name, operand in (("A", mma.a), ("B", mma.b)):
        for start in operand.start_addresses:
            (home,) = [r for r in regions if r.start <= start < r.start + r.bytes]
            assert home.what == f"s{name}: operand {name} of wgmma"
            assert any("TMA load" in writer for writer in home.writers)
            assert any(f"wgmma {name}" in reader for reader in home.readers)


def test_the_launch_is_the_one_that_was_made(run):
    launch = run.kernel.launch
    assert (launch.launches, launch.grids, launch.block) == (1, (run.launch.grid,), run.launch.block)
    assert launch.dynamic_smem_bytes == run.launch.dynamic_smem_bytes
    assert run.kernel.entry == run.launch.kernel


@pytest.mark.parametrize("width", [80, 140, 40])
def test_text_fits_and_has_the_facts(run, width):
    text = run.explanation.text(width)
    assert max(map(len, text.splitlines())) <= width
    together = re.sub(r"\s+", "", text)
    for fact in ("ring.full", "ring.empty", "SW128", str(run.launch.smem_bytes), "swizzle"):
        assert fact in together


class Page(HTMLParser):
    """A parser of a page: the files that the page loads, its definitions, and the elements that it leaves open."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.definitions, self.pictures, self.text = [], [], [], 0, ""
        self.kinds = Counter()

    def handle_starttag(self, tag, attributes):
        self.kinds[tag] += 1
        if tag not in ("meta", "rect", "line", "path", "br"):
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "data", "action") and not value.startswith("#"):
                self.loads.append(value)
        if tag in ("dt", "dd"):
            self.definitions.append((tag, ""))

    def handle_endtag(self, tag):
        if tag not in ("rect", "line", "path"):
            assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.kinds[tag] += 1

    def handle_data(self, data):
        if self.open and self.open[-1] in ("dt", "dd"):
            tag, text = self.definitions.pop()
            self.definitions.append((tag, text + data))
        self.text += data


def test_the_page_says_the_same_and_loads_nothing(run):
    page = Page()
    page.feed(run.explanation.html())
    assert (page.open, page.loads, page.kinds["script"]) == ([], [], 0)
    texts = [text for _, text in page.definitions]
    facts = dict(zip(texts[::2], texts[1::2], strict=True))
    assert facts["swizzle"].startswith("SW")
    assert facts["registers" if "registers" in facts else "not known"]
    assert page.kinds["svg"] == sum(1 for _ in re.finditer("<details>", run.explanation.html())) >= 4
    assert "url(" not in run.explanation.html().replace("url(#", "")
    assert "@import" not in run.explanation.html()
    for barrier in run.kernel.barriers:
        assert barrier.name.removeprefix("bar ") in page.text


def test_json_has_all_of_it(run):
    told = json.loads(json.dumps(run.explanation.json()))
    (kernel,) = told["kernels"]
    assert kernel["launch"]["block"] == list(run.launch.block)
    assert {int(word, 16) for mma in kernel["mmas"] for word in mma["a"]["descriptors"]} == run.counting.words["a"]
    assert kernel["mmas"][0]["a"]["layout"].startswith("Sw<3,4,3> o smem_ptr[16b](")
    assert {tuple(copy["tensor_maps"][0]["dims"]) for copy in kernel["copies"]} == {(K, M), (K, N), (N, M)}


def test_in_a_notebook_it_is_a_fragment(run):
    fragment = run.explanation._repr_html_()
    assert fragment.startswith("<div")
    assert "<html" not in fragment


def test_without_a_launch_the_ptx_says_the_same_where_it_says_anything(run):
    (static,) = explain(run.ptx, assembler=False).kernels
    assert [(m.opcode, m.instructions, m.site) for m in static.mmas] == [
        (m.opcode, m.instructions, m.site) for m in run.kernel.mmas
    ]
    for told, seen in zip(static.mmas, run.kernel.mmas, strict=True):
        for name in "ab":
            before, after = getattr(told, name), getattr(seen, name)
            assert (before.lbo, before.sbo, before.swizzle) == (after.lbo, after.sbo, after.swizzle)
            assert min(before.start_addresses) == min(after.start_addresses)
    names = {b.name: (b.addresses, b.arrivals) for b in run.kernel.barriers if b.kind == "mbarrier"}
    assert {b.name: (b.addresses, b.arrivals) for b in static.barriers if b.kind == "mbarrier"} == names


def test_the_documentation_shows_what_is_said(run):
    def numberless(text):
        return re.sub(r"\.py:\d+", ".py:0", text)

    said = numberless(run.explanation.text(80))
    page = Path(__file__).parents[2] / "docs" / "explain.md"
    blocks = re.findall(r"```text\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert numberless(block.rstrip()) in said


def test_a_compiled_function_brings_its_registers(run, monkeypatch):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(run.cache))
    compiled = compile_gemm(CONFIG)
    (kernel,) = explain(compiled, assembler=False).kernels
    (resources,) = compiled.resources
    assert kernel.resources.registers == resources.registers
    assert kernel.resources.spill_store_bytes == resources.spill_store_bytes
    assert (kernel.resources.assembler, kernel.unassembled) == ("its cubin", "ptxas was not asked")
    assert "Advisories of ptxas: not known: ptxas was not asked" in explain(compiled, assembler=False).text()
