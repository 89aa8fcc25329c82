"""The GEMM compiles for sm_90a with no GPU, and its PTX and cubin hold what was meant."""

import dataclasses
from functools import cache

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from cutepy.dsl import ptx  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.inspection import facts  # noqa: E402


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


@cache
def compiled(name):
    """Compile each configuration once."""
    return compile_gemm(CONFIGS[name])


@pytest.fixture(params=CONFIGS)
def kernel(request):
    """Give (config, compiled)."""
    return CONFIGS[request.param], compiled(request.param)


def test_the_compiled_code_is_what_the_configuration_means(kernel):
    """Instruction, transposes, whole descriptors, barriers, shared and local memory."""
    chosen, code = kernel
    for fact in facts(chosen, code):
        assert fact.found == fact.meant, fact.name


def test_the_facts_are_spelled_as_expected():
    """What is meant is written down here once more by hand, for one kernel."""
    assert {fact.name: fact.meant for fact in facts(CONFIGS["half"], compiled("half"))} == {
        "wgmma": "m64n256k16.f32.f16.f16",
        "transposes of A, B": "(0, 0)",
        "descriptors of A": "0x4000004000010000, 0x4000004000010002, 0x4000004000010004, 0x4000004000010006",
        "descriptors of B": "0x4000004000011000, 0x4000004000011002, 0x4000004000011004, 0x4000004000011006",
        "MMAs in the text": "8",
        "mbarrier arrivals": "[1, 16, 1, 16, 1, 16, 1, 16]",
        "shared memory": "229440 bytes",
        "stack frame": "0 bytes",
    }


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("wgmma", ("m64n256k16.f32.f16.f16", "m64n256k16.f32.bf16.bf16")),
        ("transposes of A, B", (", p, 1,  1, 0, 0;", ", p, 1,  1, 1, 0;")),
        ("descriptors of A", ("4611686293305360384", "4611686293305294848")),
        ("mbarrier arrivals", ("mbarrier.init.shared.b64", "mbarrier.inval.shared.b64")),
    ],
)
def test_a_fact_that_does_not_hold_is_seen(name, change):
    kernel = compiled("half")
    assert change[0] in kernel.ptx
    changed = dataclasses.replace(kernel, ptx=kernel.ptx.replace(*change))
    broken = [fact.name for fact in facts(CONFIGS["half"], changed) if not fact.holds]
    assert name in broken
    assert all(fact.holds for fact in facts(CONFIGS["half"], kernel))


def test_the_protocol_is_there(kernel):
    chosen, code = kernel
    count = ptx.opcodes(code.ptx)

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
    chosen, code = kernel
    (resources,) = code.resources
    assert resources.name.startswith(chosen.name)
    assert resources.frame_bytes == 0
    assert ".local" not in code.ptx
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
