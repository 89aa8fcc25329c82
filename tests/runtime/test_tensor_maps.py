"""Tensor maps that host code encodes by a call of the driver, and calls of host code that fail."""

import ctypes

import pytest
import torch

import cutepy
from cutepy.layouts import LayoutError
from cutepy.layouts.sm90 import TensorMap
from cutepy.runtime import host_calls
from cutepy.runtime.tensor_maps import encode_im2col, encode_tiled, replace_address
from tests.messages import refuses

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")
cuda = pytest.importorskip("cutlass.experimental.cuda")
prims = pytest.importorskip("cutlass.experimental.primitives")

ROWS, COLUMNS = 32, 64


@cute.kernel
def store_kernel(target: cutlass.GridConstant[cuda.TensorMap]):
    smem = cutlass.Array(cutlass.Float16, ROWS * COLUMNS, space=cutlass.AddressSpace.smem, alignment=128)
    row = cute.arch.thread_idx()[0]
    for column in cutlass.range(COLUMNS):
        (smem.data_ptr() + (row * COLUMNS + column)).store(cutlass.Float16(row))
    prims.fence_proxy(prims.Proxy.ASYNC_SHARED, space=prims.SharedSpace.shared_cta)
    prims.barrier_cta_sync(0)
    if prims.elect_sync():
        prims.cp_async_bulk_tensor_global_shared_cta(target.get_ptr(), smem, (0, 0))
    prims.cp_async_bulk_commit_group()
    prims.cp_async_bulk_wait_group(0)


@cute.jit
def store(b: cute.Tensor, shift_bytes: cutlass.Int64):
    target = cuda.create_tensor_map_tiled(
        global_address=b.iterator.toint() + shift_bytes,
        dtype=cutlass.Float16,
        global_dims=[b.shape[1], b.shape[0]],
        global_strides=[b.shape[1] * 2 // 16],
        box_dims=[COLUMNS, ROWS],
    )
    store_kernel(target).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_host_code_encodes_a_tensor_map():
    b = torch.full((ROWS, COLUMNS + 8), -1.0, dtype=torch.float16)
    with cutepy.simulate():
        store(b, 0)
    assert (b[:, :COLUMNS] == torch.arange(ROWS)[:, None]).all()
    assert (b[:, COLUMNS:] == -1).all()


@pytest.mark.parametrize("options", ["", "--enable-tvm-ffi"])
def test_a_map_that_the_driver_refuses_is_an_error_here(options):
    """The host code asserts that the call succeeds, which on a GPU ends the process."""
    b = torch.zeros(ROWS, COLUMNS, dtype=torch.float16)
    with cutepy.simulate() as run:
        tensor = cute.runtime.from_dlpack(b, enable_tvm_ffi=bool(options)).mark_layout_dynamic()
        compiled = cute.compile(store, tensor, cutlass.Int64(0), options=options)
        with refuses(LayoutError):
            compiled(b, 2)
        assert not run.launches
        compiled(b, 0)
    assert b[ROWS - 1].eq(ROWS - 1).all()


def test_a_call_that_is_not_served_is_an_error_by_name(monkeypatch):
    monkeypatch.delattr(host_calls.HostCalls, "_cuTensorMapEncodeTiled")
    with cutepy.simulate() as run, refuses(NotImplementedError):
        store(torch.zeros(ROWS, COLUMNS, dtype=torch.float16), 0)
    assert not run.launches


# CUtensorMapDataType: what stands at which number in cuda.h.
TYPES = {0: "u8", 2: "u32", 6: "f16", 7: "f32", 8: "f64", 9: "bf16", 10: "f32.ftz", 11: "tf32", 12: "tf32.ftz"}


def encoded(dtype, dims, strides, box, steps, modes, shift=0, address=0x1000):
    memory = ctypes.create_string_buffer(256 + shift)
    target = (ctypes.addressof(memory) + 63 & -64) + shift
    arrays = [(ctypes.c_uint64 * len(v))(*v) for v in (dims, strides)]
    arrays += [(ctypes.c_uint32 * len(v))(*v) for v in (box, steps)]
    encode_tiled(target, dtype, len(dims), address, *map(ctypes.addressof, arrays), modes)
    return target, memory


@pytest.mark.parametrize(("number", "dtype"), TYPES.items())
def test_the_drivers_numbers_mean_what_they_mean_to_it(number, dtype):
    target, memory = encoded(number, (64, 32, 4), (512, 16384), (16, 8, 2), (1, 2, 1), (0, 3, 3, 0))
    words = ctypes.string_at(target, 64)
    found = TensorMap.decode([int.from_bytes(words[n : n + 8], "little") for n in range(0, 64, 8)])
    strides, box = (512, 16384), (16, 8, 2)
    modes = {"element_strides": (1, 2, 1), "swizzle": "SW128", "l2_promotion": "256B"}
    assert found == TensorMap(dtype, (64, 32, 4), strides, box, global_address=0x1000, **modes)
    replace_address(target, 0x2000)
    assert ctypes.c_uint64.from_address(target).value == 0x2000
    del memory


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": 13},
        {"modes": (3, 0, 0, 0)},
        {"modes": (0, 4, 0, 0)},
        {"modes": (0, 0, 4, 0)},
        {"modes": (0, 0, 0, 2)},
        {"box": (257, 1)},
        {"strides": (8,)},
        {"shift": 16},
        {"address": 0x1008},
        {
            "address": 0x1010,
            "modes": (2, 1, 0, 0),
            "dims": (64, 8, 4),
            "strides": (128, 1024),
            "box": (32, 8, 1),
            "steps": (1, 1, 1),
        },
        {"dims": (1,) * 6},
    ],
)
def test_what_the_driver_refuses(change):
    legal = {"dtype": 6, "dims": (64, 32), "strides": (128,), "box": (64, 8), "steps": (1, 1), "modes": (0, 0, 0, 0)}
    encoded(**legal)
    with refuses(ValueError):
        encoded(**{**legal, **change})


@pytest.mark.parametrize("rank", [1, 2])
def test_tensors_without_images_have_no_im2col_mode(rank):
    memory, numbers = ctypes.create_string_buffer(256), (ctypes.c_uint64 * 8)(*[64] * 8)
    target, given = ctypes.addressof(memory) + 63 & -64, ctypes.addressof(numbers)
    with refuses(LayoutError):
        encode_im2col(target, 6, rank, 0x1000, given, given, given, given, 32, 128, given, (0, 0, 0, 0))


def test_a_b200_has_swizzles_of_larger_atoms():
    arguments = (7, (64, 32), (256,), (32, 8), (1, 1))
    with cutepy.simulate(arch="sm_100a"):
        target, memory = encoded(*arguments, (0, 4, 0, 0))
        words = ctypes.string_at(target, 64)
        found = TensorMap.decode([int.from_bytes(words[n : n + 8], "little") for n in range(0, 64, 8)])
        assert found.swizzle == "SW128_32B"
        for refused in (5, 6, 7):
            with refuses(ValueError):
                encoded(*arguments, (0, refused, 0, 0))
    del memory


@pytest.mark.parametrize("address", [0x2001, 0x2004, 0x2008, 0x200F])
def test_an_address_that_tma_can_not_take_is_not_put_into_a_map(address):
    target, memory = encoded(6, (64, 32), (128,), (64, 8), (1, 1), (0, 0, 0, 0))
    before = ctypes.string_at(target, 128)
    with refuses(LayoutError):
        replace_address(target, address)
    assert ctypes.string_at(target, 128) == before
    replace_address(target, 0x2010)
    assert ctypes.c_uint64.from_address(target).value == 0x2010
    with refuses(ValueError):
        replace_address(target + 16, 0x2010)
    del memory


def test_a_map_of_interleaved_slices_takes_multiples_of_32():
    target, memory = encoded(6, (64, 8, 4), (128, 1024), (32, 8, 1), (1, 1, 1), (2, 1, 0, 0))
    with refuses(LayoutError):
        replace_address(target, 0x2010)
    replace_address(target, 0x2020)
    del memory
