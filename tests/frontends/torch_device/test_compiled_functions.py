"""All that a compiled function has, asked where a served device takes the place of a GPU."""

import copy
import inspect
import pickle

import pytest
import torch

import cutepy
from cutepy.frontends.torch_device import serve_cuda
from cutepy.host.function import Function, WrongDeviceError
from tests.host import inspected
from tests.messages import refuses

pytestmark = pytest.mark.dsl

VECTOR = cutepy.TensorSpec("float32", ("n",))


@pytest.fixture(scope="module")
def function():
    return cutepy.compile(inspected.staged, VECTOR, VECTOR, 1, threads=64, cluster=2, stages=1, cache=False)


@pytest.fixture(params=["served", "simulated", "both"])
def run(request):
    """A served device, a simulation in host memory, and the one within the other."""
    if request.param == "simulated":
        with cutepy.simulate() as run:
            yield run
        return
    with serve_cuda() as run:
        if request.param == "served":
            yield run
        else:
            with cutepy.simulate() as inner:
                yield inner


def _launched(function):
    source = torch.arange(128.0, device="cuda" if torch.cuda.is_available() else "cpu")
    target = torch.empty_like(source)
    function(source, target, 1)
    return target.tolist() == [*range(63, -1, -1), *range(127, 63, -1)]


ASKED = {
    "__call__": _launched,
    "__copy__": lambda f: copy.copy(f) is f,
    "__deepcopy__": lambda f: copy.deepcopy(f) is f,
    "__reduce__": lambda f: _launched(pickle.loads(pickle.dumps(f))),
    "__repr__": lambda f: "staged(source" in repr(f),
    "cost": lambda f: f.cost().total > 0,
    "cubin": lambda f: f.cubin.startswith(b"\x7fELF"),
    "prepare": lambda f: f.prepare() is f.prepare(0) is f and _launched(f),
    "ptx": lambda f: ".visible .entry" in f.ptx,
    "resources": lambda f: (
        isinstance(f.resources[0].registers, int)
        and f.resources[0].cluster == (2, 1, 1)
        and f.resources[0].max_active_clusters is None
    ),
    "sass": lambda f: "STG" in f.sass,
    "with_check": lambda f: f.with_check(lambda *arguments: None) is not f,
    "with_empty_hint": lambda f: f.with_empty_hint("launch nothing") is not f,
    "with_smem_plan": lambda f: f.with_smem_plan(None).program == f.program and _launched(f.with_smem_plan(None)),
    "without_lazy_check": lambda f: _launched(f.without_lazy_check()),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_a_function_has_is_answered(function, run, name):
    assert ASKED[name](function)


def test_nothing_that_it_has_is_left_out():
    public = {name for name in vars(Function) if not name.startswith("_")} - {"of_entry"}
    documented = {name for name, value in vars(Function).items() if inspect.isfunction(value) and value.__doc__}
    private = {name for name in documented if name.startswith("_") and not name.startswith("__")}
    assert public | (documented - private) - {"of_entry", "__init__"} == ASKED.keys() - {"__repr__"}


def test_explain_takes_it(function, run):
    (kernel,) = cutepy.explain(function, assembler=False).kernels
    assert kernel.resources is not None


def test_there_is_one_device_to_prepare(function, run):
    with refuses(WrongDeviceError):
        function.prepare(1)


@pytest.mark.parametrize("device", [None, 0, "cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0)], ids=str)
def test_the_device_is_named_as_torch_names_it(function, run, device):
    assert function.prepare(device) is function


@pytest.mark.parametrize(
    ("device", "error"),
    [(torch.device("cuda", 1), WrongDeviceError), ("cpu", ValueError), ("gpu", ValueError), (0.0, TypeError)],
    ids=str,
)
def test_devices_that_are_not_the_one(function, run, device, error):
    with refuses(error):
        function.prepare(device)
