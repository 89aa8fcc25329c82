"""`f.sass`, `f.resources` and `f.cost()`."""

import copy
import pickle
import stat
import time
from pathlib import Path

import pytest

from tests.messages import refuses

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass.cute as cute  # noqa: E402
import torch  # noqa: E402

import cutepy  # noqa: E402
from cutepy.binaries.sass import DisassemblyError, disassemble, find_nvdisasm  # noqa: E402
from cutepy.host.inspection import Cost, resources  # noqa: E402
from cutepy.host.specs import TensorSpec  # noqa: E402
from cutepy.layouts.sm90.occupancy import Occupancy  # noqa: E402
from cutepy.runtime.program import LaunchFacts  # noqa: E402
from tests.host import inspected, kernels  # noqa: E402

VECTOR = TensorSpec("float32", ("n",))
STAGES = ["trace", "lower", "assemble", "host"]


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def staged():
    return cutepy.compile(inspected.staged, VECTOR, VECTOR, 1, threads=256, cluster=4, stages=3, cache=False)


def test_resources_of_a_kernel(staged):
    (found,) = staged.resources
    assert "staged" in found.kernel
    assert 0 < found.registers <= 255
    assert (found.spill_store_bytes, found.spill_load_bytes, found.stack_bytes) == (0, 0, 0)
    assert (found.static_smem_bytes, found.dynamic_smem_bytes) == (0, 3 * 256 * 4)
    assert (found.block, found.threads, found.cluster) == ((256, 1, 1), 256, (4, 1, 1))
    assert found.occupancy == Occupancy(
        8, 64, {"registers": found.occupancy.limits["registers"], "shared memory": 57, "warps": 8, "CTAs": 32}
    )
    if not torch.cuda.is_available():
        assert found.max_active_clusters is None


def test_a_program_from_the_disk_has_the_same_resources(staged):
    examples = (inspected.staged, VECTOR, VECTOR, 1)
    for _ in range(2):
        found = cutepy.compile(*examples, threads=256, cluster=4, stages=3)
        assert found.resources == staged.resources


def test_what_arguments_decide_is_not_known():
    with pytest.warns(UserWarning, match="Dynamic variable in block size"):
        found = cutepy.compile(inspected.by_arguments, VECTOR, VECTOR, 1, cache=False)
    (kernel,) = found.resources
    assert (kernel.block, kernel.threads, kernel.cluster, kernel.dynamic_smem_bytes) == (None, None, None, None)
    assert kernel.occupancy is kernel.max_active_clusters is None
    assert kernel.registers > 0


def test_kernels_are_listed_as_they_are_launched():
    found = cutepy.compile(inspected.two, VECTOR, VECTOR, cache=False)
    assert [kernel.block for kernel in found.resources] == [(128, 1, 1), (64, 2, 1)]


def test_launches_that_differ_leave_unknown_what_differs(staged):
    (launch,) = staged.program.launches
    other = LaunchFacts(launch.kernel, launch.block, (2, 1, 1), launch.dynamic_smem_bytes)
    program = type(staged.program)(**{**vars(staged.program), "launches": (launch, other)})
    (kernel,) = resources(program)
    assert (kernel.block, kernel.cluster) == ((256, 1, 1), None)
    assert kernel.occupancy is not None


def test_a_program_without_facts_has_what_its_kernels_say(staged):
    program = type(staged.program)(**{**vars(staged.program), "launches": ()})
    (kernel,) = resources(program)
    assert (kernel.block, kernel.cluster, kernel.dynamic_smem_bytes) == ((256, 1, 1), None, None)


@pytest.fixture
def nvdisasm():
    try:
        return find_nvdisasm()
    except DisassemblyError as error:
        pytest.skip(str(error))


def test_sass_stands_between_its_lines_of_source(nvdisasm, staged):
    sass = staged.sass
    assert "BAR.SYNC" in sass
    assert "EXIT" in sass
    line = f'File "{inspected.__file__}", line '
    lines = [part.splitlines() for part in sass.split(line)[1:]]
    source = Path(inspected.__file__).read_text().splitlines()
    assert len(lines) > 5
    for number, text, *_ in lines:
        assert text.removeprefix("\t//## ") == source[int(number) - 1]
    (stored,) = {text for _, text, *code in lines if any("STG" in instruction for instruction in code)}
    assert "target[i] = " in stored


def tool(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_disassembler_is_looked_for_in_three_places(monkeypatch, tmp_path):
    packaged = tool(tmp_path / "package" / "nvdisasm", "")
    on_path = tool(tmp_path / "path" / "nvdisasm", "")
    at_home = tool(tmp_path / "cuda" / "bin" / "nvdisasm", "")
    monkeypatch.setattr("cutepy.binaries.sass._packaged", lambda: packaged)
    monkeypatch.setenv("PATH", str(on_path.parent))
    for place in (packaged, on_path, at_home):
        assert find_nvdisasm(tmp_path / "cuda") == place
        place.unlink()
    with refuses(DisassemblyError):
        find_nvdisasm()


def test_a_disassembler_that_fails_is_quoted(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "cutepy.binaries.sass._packaged", lambda: tool(tmp_path / "nvdisasm", "echo too new >&2; exit 3")
    )
    with refuses(DisassemblyError):
        disassemble(b"")


def test_a_cost_tells_stages_that_add_up(monkeypatch):
    examples = (kernels.add, VECTOR, VECTOR, VECTOR, 1.0)
    first, second = cutepy.compile(*examples).cost(), cutepy.compile(*examples).cost()
    assert list(first.stages) == [*STAGES, "store"]
    assert list(second.stages) == ["trace", "load"]
    assert (first.cached, second.cached) == (False, True)
    assert second.compilation == first.compilation == {name: first.stages[name] for name in STAGES}
    assert second.total == sum(second.stages.values()) < first.total
    uncached = cutepy.compile(*examples, cache=False).cost()
    assert list(uncached.stages) == STAGES
    assert not uncached.cached


def slow():
    time.sleep(0.5)


@cute.jit
def slowly(a: cute.Tensor):
    slow()
    kernels._copy(a, a).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_a_stage_that_takes_longer_shows():
    """Stages are measured, not guessed: a trace that sleeps costs the trace."""
    spec = cutepy.TensorSpec("float32", (32, "n"))
    for _ in range(2):
        stages = cutepy.compile(slowly, spec, cache=False).cost().stages
    assert stages["trace"] > 0.5
    assert max(stages[stage] for stage in stages if stage != "trace") < 0.5


def test_a_total_is_the_sum_of_the_stages():
    assert Cost({"trace": 0.25, "load": 0.5}, {}).total == 0.75


def test_a_cost_cannot_be_written_to():
    spent, compiled = {"load": 0.5}, {"trace": 1.0}
    cost = Cost(spent, compiled)
    spent["load"] = compiled["trace"] = 7.0
    for mapping in (cost.stages, cost.compilation):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping["load"] = 3.0
    assert (cost.stages, cost.compilation, cost.total) == ({"load": 0.5}, {"trace": 1.0}, 0.5)
    assert pickle.loads(pickle.dumps(cost)) == copy.deepcopy(cost) == cost


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("threads", "cluster", "stages"), [(128, 1, 1), (256, 4, 3), (96, 2, 64), (1024, 8, 10), (512, 16, 100)]
)
def test_occupancy_is_what_cuda_says(threads, cluster, stages):
    from cuda.bindings import driver

    f = cutepy.compile(
        inspected.staged, VECTOR, VECTOR, 1, threads=threads, cluster=cluster, stages=stages, cache=False
    )
    (kernel,) = f.resources
    torch.zeros(1, device="cuda")

    def ask(function, *arguments):
        error, *values = function(*arguments)
        assert error == driver.CUresult.CUDA_SUCCESS
        return values[0] if values else None

    library = ask(driver.cuLibraryLoadData, f.cubin, [], [], 0, [], [], 0)
    function = ask(driver.cuKernelGetFunction, ask(driver.cuLibraryGetKernel, library, kernel.kernel.encode()))
    attributes = driver.CUfunction_attribute
    smem = kernel.dynamic_smem_bytes
    ask(driver.cuFuncSetAttribute, function, attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem)
    assert ask(driver.cuFuncGetAttribute, attributes.CU_FUNC_ATTRIBUTE_NUM_REGS, function) == kernel.registers
    assert ask(driver.cuFuncGetAttribute, attributes.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) == 0
    ctas = ask(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, function, threads, smem)
    assert kernel.occupancy.ctas_per_sm == ctas
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    assert 0 < kernel.max_active_clusters <= processors * ctas // cluster


def test_host_code_without_kernels():
    made = cutepy.compile(inspected.without_kernels, VECTOR, 1)
    for function in (made, cutepy.compile(inspected.without_kernels, VECTOR, 1)):
        assert (function.ptx, function.cubin, function.sass, function.resources) == ("", b"", "", ())
        with cutepy.simulate() as run:
            function(torch.zeros(32), 5)
        assert not run.launches
    assert function.cost().cached
    assert list(made.cost().compilation) == ["trace", "host"]


@pytest.mark.gpu
def test_host_code_without_kernels_needs_none_loaded():
    cutepy.compile(inspected.without_kernels, VECTOR, 1).prepare()(torch.zeros(32, device="cuda"), 5)
