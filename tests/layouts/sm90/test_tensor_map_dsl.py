"""The TMA descriptor against the one that the DSL's compiler packs."""

import re

import pytest

from cutepy.layouts import ComposedLayout, Layout, Swizzle, make_ordered_layout, sm90

pytestmark = pytest.mark.dsl


def words_packed_by_the_compiler(x, tile, order, swizzle_bits):
    """Compile a host function that makes a TMA atom of static shapes: its 64-bit constants are the words."""
    import cutlass.cute as cute
    from cutlass.cute.nvgpu import cpasync
    from cutlass.cute.runtime import from_dlpack

    @cute.kernel
    def kernel(atom: cute.CopyAtom, tensor: cute.Tensor):
        pass

    @cute.jit
    def host(tensor: cute.Tensor):
        smem = cute.make_composed_layout(
            cute.make_swizzle(swizzle_bits, 4, 3), 0, cute.make_ordered_layout(tile, order=order)
        )
        atom, view = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), tensor, smem, tile)
        kernel(atom, view).launch(grid=(1, 1, 1), block=(32, 1, 1))

    module = str(cute.compile(host, from_dlpack(x, assumed_align=16)).ir_module)
    host_code = module[module.index("llvm.func @cutlass_") :]
    return {int(text) % 2**64 for text in re.findall(r"constant\((-?\d+) : i64\)", host_code)}


@pytest.mark.parametrize(
    ("dtype", "shape", "order", "tile", "swizzle_bits"),
    [
        ("bfloat16", (256, 512), (1, 0), (128, 64), 3),
        pytest.param("float16", (192, 320), (0, 1), (64, 8), 3, marks=pytest.mark.integration),
        pytest.param("float16", (64, 1016), (1, 0), (8, 64), 3, marks=pytest.mark.integration),
        pytest.param("float32", (256, 512), (1, 0), (128, 8), 1, marks=pytest.mark.integration),
        ("float16", (4, 8, 2048, 16), (3, 2, 1, 0), (2, 4, 64, 16), 0),
    ],
)
def test_the_compiler_packs_the_same_words(monkeypatch, dtype, shape, order, tile, swizzle_bits):
    import torch

    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    names = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "uint8": "u8", "float64": "f64"}
    outermost_first = sorted(range(len(shape)), key=lambda mode: -order[mode])
    storage = torch.zeros([shape[mode] for mode in outermost_first], dtype=getattr(torch, dtype))
    x = storage.permute([outermost_first.index(mode) for mode in range(len(shape))])
    smem = ComposedLayout(Swizzle(swizzle_bits, 4, 3), 0, make_ordered_layout(tile, order))
    copy = sm90.make_tma_copy(Layout(tuple(x.shape), x.stride()), smem, dtype=names[dtype])
    missing = set(copy.tensor_map.encode()[1:]) - words_packed_by_the_compiler(x, tile, order, swizzle_bits) - {0}
    assert not missing, [hex(word) for word in missing]
