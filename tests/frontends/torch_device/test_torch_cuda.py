"""`torch.cuda` on a served device: each function answers in the GPU's types, or is refused by name."""

import importlib
import subprocess
import sys
import warnings

import pytest
import torch

import cutepy
from cutepy.frontends.torch_device import NotServedError, serve_cuda, tensor_types
from tests.messages import refuses

pytestmark = pytest.mark.dsl


def test_a_chip_that_is_not_there_is_answered_for_as_one_that_is_idle():
    with serve_cuda():
        for name in ("utilization", "memory_usage", "temperature", "power_draw"):
            assert [type(getattr(torch.cuda, name)(*given)) for given in ((), (0,), ("cuda",))] == [int] * 3
            with refuses(RuntimeError):
                getattr(torch.cuda, name)(1)
        assert torch.cuda.clock_rate() > 1000
        assert torch.cuda.host_memory_stats() == {}
        assert not torch.cuda.tunable.is_enabled()
        torch.cuda.reset_accumulated_memory_stats()
        torch.cuda.set_sync_debug_mode("default")
        with refuses(NotServedError):
            torch.cuda.set_sync_debug_mode("warn")


ELSEWHERE = {
    "factory": lambda: torch.ones(1, device="cuda:1"),
    "number": lambda: torch.empty(0, device=1),
    "strided": lambda: torch.empty_strided((2,), (1,), device="cuda:1"),
    "computed": lambda: torch.ones(1, device="cuda").new_tensor([3], device="cuda:1"),
    "drawn": lambda: torch.randn(3, device=torch.device("cuda", 1)),
    "like": lambda: torch.zeros_like(torch.ones(1, device="cuda"), device="cuda:1"),
    "to": lambda: torch.ones(1).to("cuda:1"),
    "from the device": lambda: torch.ones(1, device="cuda").to("cuda:1", torch.float16),
    "cuda": lambda: torch.ones(1).cuda(1),
    "module": lambda: torch.nn.Linear(2, 2).to("cuda:1"),
    "empty module": lambda: torch.nn.Linear(2, 2, device="meta").to_empty(device="cuda:1"),
    "storage": lambda: torch.UntypedStorage(4, device="cuda:1"),
    "sent storage": lambda: torch.ones(1).untyped_storage().cuda(1),
    "numpy": lambda: torch.asarray([1.0], device="cuda:1"),
    "capsule": lambda: torch.ones(1, device="cuda").__dlpack__(dl_device=(2, 1)),
    "set_device": lambda: torch.cuda.set_device(1),
    "context": lambda: torch.cuda.device(1).__enter__(),
    "generator": lambda: torch.Generator("cuda:1"),
    "state": lambda: torch.cuda.get_rng_state(1),
    "new state": lambda: torch.cuda.set_rng_state(torch.get_rng_state(), "cuda:1"),
    "stream": lambda: torch.cuda.Stream(1),
    "external stream": lambda: torch.cuda.ExternalStream(0, device="cuda:1"),
    "current stream": lambda: torch.cuda.current_stream(1),
    "default stream": lambda: torch.cuda.default_stream("cuda:1"),
    "synchronize": lambda: torch.cuda.synchronize(1),
    "memory": lambda: torch.cuda.memory_allocated(1),
    "accelerator": lambda: torch.accelerator.synchronize(1),
}


def test_a_device_beside_the_one_is_no_device():
    with serve_cuda():
        for name, ask in ELSEWHERE.items():
            with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
                pytest.fail(f"{name}: {ask()}")
        for name in ("properties", "name", "capability"):
            for device in (1, "cuda:1", -1):
                with pytest.raises(AssertionError, match="Invalid device id"):
                    getattr(torch.cuda, f"get_device_{name}")(device)
        with pytest.raises(AssertionError, match="Invalid device id"):
            torch.cuda.can_device_access_peer(0, 1)
        assert torch.zeros(1, device="cuda:0").device == torch.zeros(1, device=0).device == torch.device("cuda", 0)


def test_another_object_is_the_current_device():
    with serve_cuda():
        torch.cuda.synchronize(torch.cuda.current_stream())
        torch.cuda.synchronize(torch.cuda.device(0))


def test_torch_says_that_it_is_built_for_cuda_while_the_device_is_served():
    with serve_cuda():
        major, minor = map(int, torch.version.cuda.split("."))
        assert major >= 12
        assert minor < 10
        assert torch.backends.cuda.is_built()
        cutepy.load_ptx(COPY).launch("copy", 1, 1, (torch.zeros(1, device="cuda"),))  # its memory is the host's
    assert torch.version.cuda is None
    assert not torch.backends.cuda.is_built()


COPY = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry copy(.param .u64 p) { ret; }"


@pytest.mark.parametrize(("name", "dtype"), sorted(tensor_types.NAMES.items()))
def test_types_of_tensors_make_tell_and_convert(name, dtype):
    with serve_cuda():
        kind = getattr(torch.cuda, name)
        made = [kind([1, 0]), kind(2, 3), kind()]
        assert [tuple(each.shape) for each in made] == [(2,), (2, 3), (0,)]
        assert all(each.dtype == dtype and each.is_cuda and isinstance(each, kind) for each in made)
        assert not isinstance(torch.zeros(1, dtype=dtype), kind)
        assert made[0].type() == f"torch.cuda.{name}"
        for given in (kind, f"torch.cuda.{name}"):
            found = torch.tensor([1, 0], dtype=torch.int64).type(given)
            assert found.is_cuda
            assert found.tolist() == [1, 0]
        assert made[0].type(torch.float32).dtype == torch.float32
        for refused in (lambda: torch.set_default_tensor_type(kind), lambda: getattr(torch.cuda.sparse, name)()):
            if "Bool" not in name:
                with pytest.raises(NotServedError):
                    refused()


def test_every_function_of_torch_cuda_without_arguments_answers_or_is_refused_by_name():
    """Any other exception is about the function's signature."""
    modules = "cuda cuda.memory cuda.random cuda.nccl cuda.streams cuda.tunable cuda.nvtx accelerator".split()
    with serve_cuda(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in (importlib.import_module(f"torch.{name}") for name in modules):
            for name in sorted(dir(module)):
                function = getattr(module, name)
                if name[0] == "_" or not callable(function) or not _is_of_torch(function):
                    continue
                try:
                    function()
                except NotServedError:
                    pass
                except TypeError as error:
                    assert "missing" in str(error), (module.__name__, name, error)


def _is_of_torch(function):
    return str(getattr(function, "__module__", "")).split(".")[0] in ("torch", "cutepy")


RESETS = """
import importlib
import torch

torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3, device="cuda"))
torch._dynamo.reset()
torch.compiler.reset()
torch.compiler.cudagraph_mark_step_begin()
trees = importlib.import_module("torch._inductor.cudagraph_trees")
trees.reset_cudagraph_trees()
assert trees.get_manager(0, create_if_none_exists=False) is None
torch._dynamo.explain(lambda x: x + 1)(torch.ones(3))
print("reset", torch.ones(3, device="cuda").sum().item())
"""


def test_entry_points_of_torch_compile_import_the_graph_trees(tmp_path):
    """A fresh process imports the trees while `cuda` counts as built, with names that a CPU build lacks."""
    (tmp_path / "script.py").write_text(RESETS)
    done = subprocess.run(
        [sys.executable, "-m", "cutepy", "simulate", str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "reset 3.0" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["_snapshot", "_record_memory_history", "_dump_snapshot", "_get_current_allocator"])
def test_private_functions_that_read_the_allocator_are_refused_by_name(name):
    before = getattr(torch.cuda.memory, name)
    with serve_cuda(), refuses(NotServedError):
        getattr(torch.cuda.memory, name)()
    assert getattr(torch.cuda.memory, name) is before
    assert not hasattr(torch._C, "_cuda_CUDAAllocator_AllocatorState")


def test_a_seed_repeats_what_is_drawn():
    with serve_cuda():
        for seed in (torch.cuda.manual_seed, torch.cuda.manual_seed_all):
            drawn = []
            for number in (5, 5, 6):
                seed(number)
                drawn.append(torch.rand(8, device="cuda").cpu())
            assert torch.equal(drawn[0], drawn[1])
            assert not torch.equal(drawn[0], drawn[2])
