"""The GEMM of `cutepy.kernels`: nothing in it is unordered, and what is taken out of it is missed."""

import contextlib
import re
import struct
from dataclasses import replace

import pytest
import torch

from cutepy.frontends import simulate
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm
from cutepy.layouts.sm90 import TensorMap
from cutepy.sim import HazardError, Run
from cutepy.sim.errors import SimulationError
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.sanitize import repairs
from tests.messages import pins, refuses

pytestmark = [pytest.mark.dsl, pytest.mark.integration]

pytest.importorskip("cutlass")

EXTENTS = 256, 256, 512


def gemm(sms=132, extents=EXTENTS, adds=False, **options):
    """Compile a GEMM for so many SMs, and return a function that runs it and tells whether the result is right."""
    addend = {"c_dtype": "float16", "c_major": "row"} if adds else {}
    signature = GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float16", **addend)
    kernel = compile_gemm(GemmConfig(signature=signature, **{"tile_m": 128, "tile_n": 128, "warpgroups": 2, **options}))
    m, n, k = extents
    a, b = (torch.randint(-3, 4, (rows, k)).half() for rows in (m, n))
    c = torch.randint(-3, 4, (m, n)).half() if adds else None

    def run():
        out = torch.empty((m, n), dtype=torch.float16)
        kernel(a, b, c, out, sms, None)
        return torch.equal(out, (a.float() @ b.float().t() + (0 if c is None else c.float())).half())

    return run


CONFIGURATIONS = [
    {},
    {"cluster_m": 2},
    {"tile_n": 256},
    {"cluster_m": 2, "cluster_n": 2, "warpgroups": 1, "tile_m": 64},
    {"sms": 1},
    {"sms": 2, "cluster_n": 2},
    {"sms": 1, "adds": True},
]


@pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
def test_nothing_is_unordered_and_every_schedule_is_certified(options):
    run = gemm(**options)
    with simulate(sanitize=True) as simulation:
        assert run()
    assert simulation.hazards == ()
    (certificate,) = simulation.certificates
    assert certificate.reasons == ()


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("fence.mbarrier_init", {"missing-init-fence"}),
        ("bar.sync \t0", {"unpublished-mbarrier"}),
        ("fence.proxy.async", {"missing-proxy-fence"}),
        ("bar.sync \t1", {"unordered-read"}),
        ("wgmma.fence", {"missing-wgmma-fence"}),
        ("wgmma.wait_group.sync.aligned \t0", {"accumulator-in-flight"}),
        ("wgmma.wait_group.sync.aligned \t1", {"unordered-write"}),
        ("cp.async.bulk.wait_group.read \t0", {"in-flight-at-exit"}),
    ],
)
def test_what_is_taken_out_is_missed(monkeypatch, line, kinds):
    """The values are right without it, in the simulator; the report names what it is about."""
    monkeypatch.setattr(repairs, "assembly_of", lambda ptx: None)
    _mutate(monkeypatch, line, lambda text: "")
    run = gemm()
    with refuses(HazardError) as caught, simulate(sanitize=True) as simulation:
        assert run()
    assert {hazard.kind for hazard in caught.value.hazards} >= kinds
    assert not simulation.certificates[0].is_certified


def test_a_stage_of_c_that_threads_have_read_is_not_overwritten_without_a_fence(monkeypatch):
    """The first proxy fence of the code is the one after C is read: see `TileLoad.read`."""
    _mutate(monkeypatch, "fence.proxy.async", lambda text: "")
    run = gemm(sms=1, adds=True)
    with pytest.raises(HazardError) as caught, simulate(sanitize=True):
        assert run()
    assert {hazard.kind for hazard in caught.value.hazards} == {"unfenced-overwrite"}
    (hazard,) = caught.value.hazards
    assert hazard.before.what == "ldmatrix read"
    assert hazard.after.what == "TMA write"
    pins(str(hazard))


def _mutate(monkeypatch, start, change):
    """Change the first line that begins so, in all that is launched."""
    launch = Run.launch

    def changed(self, call):
        lines = call.loaded.ptx.split("\n")
        first = next(n for n, text in enumerate(lines) if text.strip().startswith(start))
        lines[first] = change(lines[first])
        launch(self, replace(call, loaded=LoadedModule("\n".join(lines))))

    monkeypatch.setattr(Run, "launch", changed)


def _plus(amount):
    """Add to the last operand, a register."""

    def change(text):
        head, _, last = text.rpartition(", ")
        register = last.strip(" ;")
        return f"{{ .reg .b32 %mutant; add.s32 %mutant, {register}, {amount}; {head}, %mutant; }}"

    return change


def _other_parity(text):
    first, address, parity, hint = text.split(", ")
    return f"{{ .reg .b32 %mutant; xor.b32 %mutant, {parity}, 1; {first}, {address}, %mutant, {hint} }}"


MUTANTS = {
    "a wait that does not wait": (
        "mbarrier.try_wait",
        lambda text: f"setp.eq.u32 {text.split()[1].strip(',')}, 0, 0;",
    ),
    "the other parity": ("mbarrier.try_wait", _other_parity),
    "no arrival": ("mbarrier.arrive.shared", lambda text: ""),
    "no announcement": ("mbarrier.arrive.expect_tx", lambda text: ""),
    "too many bytes": ("mbarrier.arrive.expect_tx", _plus(16)),
    "a count too many": ("mbarrier.init", _plus(1)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_not_certified(monkeypatch, name):
    """The producer's first wait, the consumers' first arrival: what a persistent kernel does in each round."""
    _mutate(monkeypatch, *MUTANTS[name])
    run = gemm(sms=1)
    with contextlib.suppress(SimulationError), simulate(sanitize=True) as simulation:
        run()
    assert not any(certificate.is_certified for certificate in simulation.certificates)
    assert simulation.certificates


@pytest.mark.parametrize(
    ("change", "kind"), [({"swizzle": "INTER"}, "layout-mismatch"), ({"dtype": "bf16"}, "type-mismatch")]
)
def test_what_is_written_through_another_layout_is_misread(monkeypatch, change, kind):
    """The tensor map of A is changed, the descriptors are not."""
    launch = Run.launch

    def otherwise(self, call):
        a, *rest = call.parameters
        words = struct.unpack("<8Q", a[:64])
        changed = struct.pack("<8Q", *replace(TensorMap.decode(words), **change).encode()) + a[64:]
        launch(self, replace(call, parameters=(changed, *rest)))

    monkeypatch.setattr(Run, "launch", otherwise)
    run = gemm()
    with pytest.raises(HazardError) as caught, simulate(sanitize=True, strict=True) as simulation:
        run()
    assert bool(simulation.advisories) == (kind == "type-mismatch")
    found = caught.value.hazards
    assert {hazard.kind for hazard in found} == {kind}
    assert found[0].after.what == "wgmma read"


@pytest.mark.parametrize("operand", ["A", "B"])
def test_an_mma_that_names_the_other_major_reads_beyond_rows(monkeypatch, operand):
    """The tiles are K-major, and so are the steps from one MMA to the next."""
    launch, bits = Run.launch, {"A": r"\g<1>1, 0;", "B": r"\g<1>0, 1;"}[operand]

    def transposed(self, call):
        text, times = re.subn(r"(wgmma\.mma_async[^;]*,\s*)0, 0;", bits, call.loaded.ptx)
        assert times
        launch(self, replace(call, loaded=LoadedModule(text)))

    monkeypatch.setattr(Run, "launch", transposed)
    run = gemm(tile_m=64, tile_n=64, warpgroups=1)
    with refuses(HazardError) as caught, simulate(sanitize=True):
        run()
    assert {hazard.kind for hazard in caught.value.hazards} == {"layout-mismatch"}


def test_strides_that_are_no_patterns_are_told(monkeypatch):
    """Half of the 1024 bytes from one pattern of A and B to the next: all is there, and some of it is read twice."""
    launch, right, wrong = Run.launch, "4611686293305360384", str(0x4000002000010000)

    def halved(self, call):
        assert right in call.loaded.ptx
        launch(self, replace(call, loaded=LoadedModule(call.loaded.ptx.replace(right, wrong))))

    monkeypatch.setattr(Run, "launch", halved)
    run = gemm(tile_m=64, tile_n=64, warpgroups=1)
    with refuses(HazardError) as caught, simulate(sanitize=True):
        run()
    assert {hazard.kind for hazard in caught.value.hazards} == {"layout-mismatch"}
