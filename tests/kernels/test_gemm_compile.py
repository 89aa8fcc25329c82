"""The GEMM compiles for sm_90a with no GPU, and its PTX and cubin hold what was meant."""

import dataclasses

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from cutepy.device import rules  # noqa: E402
from cutepy.dsl import ptx  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402

PTX_TYPES = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def config(a="float16", b=None, out="float16", majors="k k row", c=None, **tile):
    a_major, b_major, out_major = majors.split()
    c_dtype, c_major = c.split() if c else (None, None)
    signature = GemmSignature(
        a_dtype=a,
        b_dtype=b or a,
        out_dtype=out,
        a_major=a_major,
        b_major=b_major,
        out_major=out_major,
        c_dtype=c_dtype,
        c_major=c_major,
    )
    return GemmConfig(signature=signature, **({"tile_m": 128, "tile_n": 256, "warpgroups": 2} | tile))


CONFIGS = {
    "half": config(cluster_m=2),
    "mn-major": config("bfloat16", out="bfloat16", majors="mn mn col"),
    "one warpgroup": config(majors="k mn row", tile_m=64, tile_n=96, warpgroups=1, stages=3, cluster_n=2),
    "8-bit": config("float8_e4m3fn", "float8_e5m2", out="bfloat16", tile_n=128, cluster_m=2, cluster_n=2),
    "two rows of MMAs": config("bfloat16", out="float32", majors="mn k row", tile_m=256, tile_n=64),
    "with c": config(c="float32 col", out="float32", tile_n=128, cluster_m=2),
    "with 16-bit c": config(c="float16 row", majors="k k col", stages=3),
}


@pytest.fixture(scope="module", params=CONFIGS)
def kernel(request):
    """Compile each configuration once: (config, compiled)."""
    chosen = CONFIGS[request.param]
    return chosen, compile_gemm(chosen)


def test_the_mma_is_the_one_that_was_meant(kernel):
    chosen, compiled = kernel
    signature = chosen.signature
    shape = (64, chosen.tile_n, 256 // signature.operand_bits)
    types = ("f32", PTX_TYPES[signature.a_dtype], PTX_TYPES[signature.b_dtype])
    transposes = tuple(int(major == "mn") for major in (signature.a_major, signature.b_major))
    mmas = ptx.wgmmas(compiled.ptx)
    assert {(mma.shape_mnk, mma.types, mma.transpose) for mma in mmas} == {(shape, types, transposes)}
    rows = chosen.tile_m // (64 * chosen.warpgroups)
    assert len(mmas) == 2 * rows * chosen.tile_k // shape[2], "one set for the first K tile, one for the others"
    assert {mma.accumulators for mma in mmas} == {chosen.tile_n // 2}


def test_descriptors_equal_those_of_the_layouts(kernel):
    """Every descriptor that the first consumer thread makes is, whole, what cutepy computes from its own layouts."""
    chosen, compiled = kernel
    bits = chosen.signature.operand_bits
    instruction_k = 256 // bits
    b_start = chosen.stages * chosen.tile_m * chosen.tile_k * bits // 8
    a, b = (
        sm90.GmmaDescriptorIterator(
            layout, major=major.upper(), bits=bits, mma_shape=(extent, instruction_k), base_address=start
        )
        for layout, major, extent, start in (
            (chosen.a_layout, chosen.signature.a_major, 64, 0),
            (chosen.b_layout, chosen.signature.b_major, chosen.tile_n, b_start),
        )
    )
    expected = {
        (int(a[row * chosen.warpgroups, k_block, 0]), int(b[0, k_block, 0]))
        for row in range(chosen.tile_m // (64 * chosen.warpgroups))
        for k_block in range(chosen.tile_k // instruction_k)
    }
    assert {mma.descriptors for mma in ptx.wgmmas(compiled.ptx, thread=rules.WARPGROUP_THREADS)} == expected


def test_barriers_count_every_stage_and_arrival(kernel):
    chosen, compiled = kernel
    consumer_warps = 4 * chosen.warpgroups
    empty = consumer_warps * (chosen.cluster_m + chosen.cluster_n - 1)
    expected = [1, empty] * chosen.stages + [1, consumer_warps] * chosen.c_stages
    assert ptx.mbarrier_counts(compiled.ptx) == expected


def test_shared_memory_is_what_the_configuration_counted(kernel):
    chosen, compiled = kernel
    launches = str(compiled.function.ir_module)
    assert f"llvm.mlir.constant({chosen.smem_bytes} : i64)" in launches


def test_the_protocol_is_there(kernel):
    chosen, compiled = kernel
    count = ptx.opcodes(compiled.ptx)

    def total(*parts):
        return sum(n for opcode, n in count.items() if all(part in opcode for part in parts))

    assert total("wgmma.fence") == total("wgmma.commit_group") == 2, "the first K tile's group, and the loop's"
    assert total("wgmma.wait_group") == 2
    assert total("fence.mbarrier_init") == 1
    assert total("fence.proxy.async") == chosen.subtiles
    contiguous = chosen.epi_tile[1 if chosen.signature.out_major == "row" else 0] * chosen.signature.out_bits // 8
    boxes = max(1, contiguous // 128)  # a box is at most one swizzle span wide
    assert total("cp.async.bulk.tensor", ".global.shared") == chosen.subtiles * boxes
    multicasts = (chosen.cluster_n > 1) + (chosen.cluster_m > 1)
    assert (total(".multicast::cluster") > 0) == (multicasts > 0)
    assert total("setmaxnreg") == (2 if chosen.warpgroups == 2 else 0)
    stores = total("stmatrix")
    assert (stores > 0) == (chosen.signature.out_bits == 16)
    assert total("stmatrix", ".trans") == (stores if chosen.signature.out_major == "col" else 0)
    loads = total("ldmatrix")
    assert (loads > 0) == (chosen.signature.c_bits == 16)


def test_nothing_spills_and_nothing_is_in_local_memory(kernel):
    chosen, compiled = kernel
    (resources,) = compiled.resources
    assert resources.name.startswith(chosen.name)
    assert resources.frame_bytes == 0
    assert ".local" not in compiled.ptx
    assert resources.registers * chosen.threads <= 64 * 1024


def test_a_kernel_with_too_many_accumulators_is_seen_to_spill():
    """256 x 256 outputs take 256 registers a thread: the configuration refuses, and the cubin shows why."""
    refused = object.__new__(GemmConfig)
    fields = dataclasses.asdict(CONFIGS["half"]) | {"signature": CONFIGS["half"].signature}
    for name, value in (fields | {"tile_m": 256, "stages": 2}).items():
        object.__setattr__(refused, name, value)
    with pytest.raises(ValueError, match="exceed the 232"):
        dataclasses.replace(CONFIGS["half"], tile_m=256)
    (resources,) = compile_gemm(refused).resources
    assert resources.frame_bytes > 0


def test_the_dsl_lays_out_shared_memory_as_cutepy_does(kernel):
    """Both languages print one layout for A and B, mode for mode."""
    import cutlass.cute as cute

    from cutepy.device import smem
    from cutepy.dsl.compile import ELEMENT_TYPES

    chosen, _ = kernel
    signature = chosen.signature
    printed = []

    @cute.jit
    def build():
        for dtype, extent, major in (
            (signature.a_dtype, chosen.tile_m, signature.a_major),
            (signature.b_dtype, chosen.tile_n, signature.b_major),
        ):
            tile = (extent, chosen.tile_k)
            printed.append(str(smem.staged_layout(ELEMENT_TYPES[dtype], tile, int(major == "k"), chosen.stages)))

    build()
    ours = [str(layout) for layout in (chosen.a_layout, chosen.b_layout)]
    swizzled = f" o smem_ptr[{signature.operand_bits}b](unset) o "
    assert [text.replace("S<", "Sw<").replace(" o 0 o ", swizzled) for text in printed] == ours
