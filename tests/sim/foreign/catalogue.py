"""Catalogue of others' sources: sizes that fit a CPU, parts for other hardware, parts that need not pass."""

import re
import shlex

from tests.sim.foreign import blackwell

SUITES = (
    (r"/quack/tests/", "QuACK, tests"),
    (r"/quack/", "QuACK, examples"),
    (r"/flash-attention/tests/cute/", "FlashAttention, tests of its CuTe kernels"),
    (r"/flash-attention/", "FlashAttention, the rest"),
    (r"/CuTeDSL/cute/blackwell_geforce/", "CUTLASS, CuTeDSL/cute/blackwell_geforce"),
    (r"/CuTeDSL/cute/blackwell/", "CUTLASS, CuTeDSL/cute/blackwell"),
    (r"/CuTeDSL/cute_ext/blackwell/", "CUTLASS, CuTeDSL/cute_ext/blackwell"),
    (r"/CuTeDSL/experimental/task_scheduling/", "CUTLASS, CuTeDSL/experimental/task_scheduling"),
    (r"/CuTeDSL/experimental/primitives/", "CUTLASS, CuTeDSL/experimental/primitives"),
    (r"/CuTeDSL/cute/hopper/", "CUTLASS, CuTeDSL/cute/hopper"),
    (r"/CuTeDSL/cute(_ext)?/ampere/", "CUTLASS, CuTeDSL/cute/ampere and cute_ext/ampere"),
    (r"/CuTeDSL/cute/notebooks/", "CUTLASS, CuTeDSL/cute/notebooks"),
    (r"/CuTeDSL/dsl_tutorials/", "CUTLASS, CuTeDSL/dsl_tutorials"),
    (r"/CuTeDSL/", "CUTLASS, CuTeDSL, the rest"),
    (r"/triton/python/", "Triton, tutorials"),
    (r"/foreign/cases/(grouped_|scaled_)?gemm", "our GEMM"),
    (r"/foreign/cases/flash_attention", "FlashAttention, forward and backward"),
    (r"/foreign/cases/quack", "QuACK, GEMM"),
    (r"/foreign/cases/triton", "Triton, matmul"),
    (r"/Liger-Kernel/test/", "Liger-Kernel, tests of its Triton kernels"),
    (r"/flash-linear-attention/tests/", "flash-linear-attention, tests of its Triton kernels"),
)
"""Regular expression of a path -> a row of the table; others are named by the folder that was given."""

ARCHS = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
_B300, _GEFORCE = ("sm_103a",), ("sm_120a",)
_BLACKWELL = ("sm_100a", "sm_103a")
HARDWARE = (
    (r"/sm103_|_sm103_", _B300, "a B300"),
    (r"/blackwell_geforce/|_sm120|/rtx", _GEFORCE, "GPUs of GeForce"),
    (r"/blackwell(?!_geforce)|/tcgen05/|_tmem_|_sm1[01]0|/task_scheduling/", _BLACKWELL, "Blackwell"),
    (r"/05_minimal_tensor_mma|/10_minimal_tensor_mma_fp8|/gemm_M128_N128_Kany", _BLACKWELL, "Blackwell"),
    (r"/fp16_gemm_4_iket|/tma_multicast|/repro_clc", _BLACKWELL, "Blackwell"),
    (r"tour_to_sol_gemm|test_gemm_(blockscaled|quant_out|w4)|test_clc_fuzz|10-block-scaled", _BLACKWELL, "Blackwell"),
    (r"/hopper/|_sm90", ("sm_90a",), "Hopper"),
)
"""Regular expression of what is tried on some architectures only, these, and what it is for."""

_GPUS, _ABSENT = ("other hardware", "several GPUs"), "not installed"
NOT_TRIED = (
    (r"/distributed/|_distributed_", *_GPUS),
    (r"/jax/|_in_jax", _ABSENT, "jax, whose device of CUDA is its own"),
    (r"/flash-attention/hopper/", _ABSENT, "FlashAttention 3, an extension in CUDA C++"),
    (r"/ffi/jit_argument", _ABSENT, "nanobind, to build an extension in C++"),
)
"""Regular expression of what is not tried, the outcome that it is given, and what it is for."""

NO_TESTS = r"/(benchmarks?|microbenchmarks|tools|scripts|helpers|utils|build)/|/bench(mark)?_[^/]*$|/conftest.py$"
"""Files that measure, or serve the rest."""

ARGUMENTS = (
    (r"/hopper/.*/dense_gemm(_persistent)?\.py$", [
        "--mnkl 256,384,128,1",
        "--mnkl 512,256,192,2 --cluster_shape_mn 2,1 --tile_shape_mn 128,256",
        "--mnkl 128,128,128,1 --acc_dtype Float16 --c_dtype Float16",
        "--mnkl 256,128,128,1 --a_dtype Float8E4M3FN --b_dtype Float8E4M3FN",
        "--mnkl 256,256,64,1 --a_major m --b_major n --c_major m",
    ]),
    (r"/dense_gemm_fp8_2xacc\.py$", ["--mnkl 256,256,256,1", "--mnkl 256,256,256,1 --cluster_shape_mn 1,1"]),
    (r"/dense_gemm_fp8_gelu_persistent\.py$", ["--mnkl 256,256,256,1", "--mnkl 256,256,256,1 --gelu_kind poly11"]),
    (r"/hopper/.*/grouped_gemm\.py$", [
        "--num_groups 2 --problem_sizes_mnkl (256,128,128,1),(128,256,64,1)",
        "--num_groups 2 --problem_sizes_mnkl (256,128,128,1),(128,256,64,1) --tensormap_update_mode GMEM",
    ]),
    (r"/hopper/.*/fmha\.py$", [
        "--q_shape 1,128,2,128 --k_shape 1,256,2,128",
        "--q_shape 1,128,2,128 --k_shape 1,128,2,128 --is_causal",
        "--q_shape 1,256,2,64 --k_shape 1,256,2,64 --is_persistent",
    ]),
    (r"/cta_norm\.py$", ["--M 16 --N 1024", "--M 16 --N 4096 --norm_type rms --dtype bf16"]),
    (r"/flash_attention_v2\.py$", [
        "--batch_size 1 --seqlen_q 256 --seqlen_k 256 --num_head 2 --warmup_iterations 0 --iterations 1",
        "--batch_size 1 --seqlen_q 256 --seqlen_k 256 --num_head 2 --warmup_iterations 0 --iterations 1 --is_causal",
    ]),
    (r"/hstu_attention\.py$", ["--batch_size 1 --seqlen_q 128 --seqlen_kv 128 --num_head 1"]),
    (r"/sgemm\.py$", ["--mnk 256,256,64 --warmup_iterations 0 --iterations 1"]),
    (r"/tensorop_gemm\.py$", ["--mnkl 256,256,64,1 --warmup_iterations 0 --iterations 1"]),
    (r"/elementwise_add\.py$", ["--M 256 --N 512"]),
    (r"/ampere/.*/elementwise_apply\.py$", ["--M 128 --N 256", "--M 129 --N 264"]),
    (r"/elementwise_add_autotune\.py$", ["--M 256 --N 256 --warmup_iterations 0 --iterations 1"]),
    (r"/programmatic_dependent_launch\.py$", ["", "--use_pdl"]),
    (r"/launch_completion_and_programmatic_events\.py$", ["", "--use-driver-api --trigger-at-block-start"]),
    (r"/foreign/cases/gemm\.py$", [
        "256,256,320 tile_m=128 tile_n=128 warpgroups=2",
        "128,256,256 tile_m=64 tile_n=128 stages=3 epi_stages=2",
        "512,256,320 tile_m=128 tile_n=128 warpgroups=2 cluster_m=2 ctas=2",
        "256,256,448 tile_m=64 tile_n=64 cluster_m=2 cluster_n=2 ctas=4",
        "256,256,640 tile_m=128 tile_n=128 warpgroups=2 a_dtype=float8_e4m3fn b_dtype=float8_e4m3fn",
        "256,256,320 tile_m=128 tile_n=128 warpgroups=2 c_dtype=float16 c_major=row",
        "192,64,768 tile_m=64 tile_n=64 stages=2 epi_stages=2 split_k=4 ctas=4",
        "256,128,320 tile_m=64 tile_n=64 stages=3 epi_stages=2 consumers=2",
        "320,64,320 tile_m=192 tile_n=64 warpgroups=3 stages=3 epi_stages=2",
        "512,64,320 tile_m=256 tile_n=64 warpgroups=2 stages=3 epi_stages=2",
    ]),
    (r"/foreign/cases/grouped_gemm\.py$", [
        "m 80,64,256 70*34,80 stages=3",
        "n 128,80,256 70*34,80 stages=3 cluster_m=2 consumers=2 ctas=2",
        "k 64,64,210 100,100,210 stages=2",
    ]),
    (r"/foreign/cases/scaled_gemm\.py$", [
        "256,48,640 tile_m=128 tile_n=48 epi_n=16 stages=3 epi_stages=2",
        "192,16,1536 tile_m=64 tile_n=16 epi_n=16 tile_k=256 stages=2 epi_stages=2 split_k=2 ctas=2",
    ]),
    (r"/foreign/cases/flash_attention\.py$", [
        f"{queries} {keys} --dim {dim} {rest}".strip()
        for queries, keys, dim, rest in (
            (256, 256, 64, ""), (200, 1100, 128, "--causal"), (256, 256, 64, "--causal"),
            (256, 256, 64, "--backward"), (200, 392, 128, "--causal --backward"),
            (128, 256, 128, "--heads 4 --heads_of_keys 2 --backward"),
            (256, 256, 64, "--causal --backward --deterministic"),
            (356, 356, 64, "--lengths 100,256 --causal --backward"),
        )
    ]),
    (r"/foreign/cases/quack_gemm\.py$", [
        "256,256,320",
        "256,128,192 pingpong=True --activation gelu_tanh_approx",
        "128,256,192 --activation swiglu --add",
        "256,256,192 cluster_m=2 --activation relu",
        "128,256,192 --gradient --activation relu",
        "512,512,64 --symmetric",
        "256,128,128 is_dynamic_persistent=True --clusters 2",
        "256,256,192 --lengths 100,156 --activation swiglu --add",
        "320,128,192 pingpong=True is_dynamic_persistent=True --lengths 70,0,250",
    ]),
    (r"/foreign/cases/triton_matmul\.py$", [
        "256,192,320",
        "256,256,256 --tile 128,128,64 --warps 8 --stages 4",
        "128,128,512 --split_k 2",
        "256,192,320 --specialise --tile 128,64,64",
    ]),
    (r"/print_latex\.py$", ["", "--tv_layout"]),
)  # fmt: skip
"""Regular expression of a script's path -> what it is called with, each a case of its own; others get nothing."""

_PERSISTENT = (
    "matmul_kernel_descriptor_persistent.configs[1:] = []; a, b = torch.randn(2, 256, 256, device='cuda').half(); "
    "torch.testing.assert_close(matmul_descriptor_persistent(a, b, {}), a @ b.T, atol=0.01, rtol=0.01)"
)
CALLS = (
    (r"/gluon/01-intro\.py$", ["test_memcpy(64, 500)"]),
    (r"/gluon/02-layouts\.py$", ["test_memcpy_2d_inout(150, 200, True, False)"]),
    (r"/gluon/03-async-copy\.py$", [
        "test_memcpy_1d_cpasync(200, 128)",
        "test_elementwise_add_cpasync(100, 200, 32, 32)",
        "[test_elementwise_add_pipelined(100, 240, 32, 64, buffers) for buffers in (1, 2, 3)]",
    ]),
    (r"/gluon/04-tma\.py$", [
        "test_memcpy_1d_tma(64, 500)",
        "[test_elementwise_add_pipelined(100, 240, 32, 64, buffers) for buffers in (1, 2, 3)]",
    ]),
    (r"/gluon/05-wgmma\.py$", [
        "[test_small_mma(64, 32, 32, in_registers, 16, 4) for in_registers in (False, True)]",
        "test_small_mma(64, 256, 128, False, 64, 8)",
        "test_blocked_matmul(144, 144, 208, 64, 64, 64, False, 4)",
        "test_blocked_matmul(144, 144, 304, 128, 128, 128, True, 8)",
        "[test_blocked_matmul_pipelined(144, 144, 304, 64, 64, 64, warps) for warps in (4, 8)]",
    ]),
    (r"/gluon/07-persistence\.py$", [
        "[test_pipelined_matmul(144, 288, 400, 128, 256, 64, *rest) for rest in ((2, 8), (3, 4))]",
        "[test_persistent_matmul(144, 288, 400, 128, 256, 64, 2, 8, one) for one in schedulers]",
        "[test_persistent_matmul_pipelined(208, 416, 304, 64, 64, 64, 3, 4, one) for one in schedulers]",
    ]),
    (r"/gluon/08-warp-specialization\.py$", [
        "[test_elementwise_add_warp_specialized(100, 240, 32, 64, *rest) for rest in ((1, 1, 4), (2, 2, 8))]",
    ]),
    (r"/02-fused-softmax\.py$", ["softmax(torch.randn(200, 130, device='cuda'))"]),
    (r"/03-matrix-multiplication\.py$", [""]),
    (r"/05-layer-norm\.py$", ["test_layer_norm(40, 520, torch.float16)"]),
    (r"/06-fused-attention\.py$", [
        f"_attn_fwd.configs[1:] = []; test_op(1, 1, 256, 64, {causal}, {specialised}, '{mode}', 'triton-{kind}')"
        for causal, specialised, mode, kind in (
            *((True, False, "bwd", "fp16"), (False, False, "bwd", "fp16"), (True, False, "fwd", "fp8")),
            (False, True, "bwd", "fp16"),
        )
    ]),
    (r"/08-grouped-gemm\.py$", [""]),
    (r"/09-persistent-matmul\.py$", [_PERSISTENT.format(specialised) for specialised in (False, True)]),
    (r"/11-programmatic-dependent-launch\.py$", ["validate(4000)"]),
)  # fmt: skip
"""Regular expression of a file's path -> code, each a case of its own, that calls its functions at the smallest sizes
that enter every loop and role; in place of what it does when it is run as a script. Empty: run it."""

SIZES = ((r"/elementwise_add\.ipynb$", "M, N = 16384, 8192", "M, N = 512, 1024"),)
"""Regular expression of a notebook's path, a size in it, and the one that it is run with."""

FIRST = (
    (r"/load_in_python\.py$", "export_to_c.py"),
    (r"/aot_use_in_torch\.py$", "aot_export.py"),
)
"""Regular expression of a script's path -> another one beside it, whose files it reads."""

RAISES = ((r"/error_reporting\.py$", "ValueError: Mismatched a.shape[0]"),)
"""Regular expression of a script's path -> how the error begins that it ends with, if all is right."""

EXACT = r"/test_gemm_(transform|epilogue)\.py$"
"""Tests that compare the bits of products in tiles of different shapes: by default wgmma sums in numpy's order."""

_ROUNDING = "wants the bits of cuBLAS: float16 within 1e-5 of torch.einsum, which adds in another order on the CPU"
_ULP = "allows less than one ulp of bfloat16: of the CPU's random numbers one of 55488 lies between two"
_PAST_THE_END = "reads document ids past their end; CUDA's allocator rounds up to 512 bytes"
_HOST = "wants tensors in host memory refused, which kernels are given on purpose"
_MEAN = "allows 1e-4; float32 on the CPU is off by 1.3e-4 from float64, the kernel by 0.8e-4"
_NO_CACHE = "wants QuACK's cache on disk, of machine code, which is off here"
_PROFILER = "asks torch's profiler for the device's events, of which there are none"
EXPLAINED = (
    (r"::test_(rmsnorm|layernorm)_input_validation$", _HOST),
    (r"::test_layernorm_forward_masks_oob_variance_lanes$", _MEAN),
    (r"::test_defer_and_retry_cold_session$", _NO_CACHE),
    (r"::test_gemm_split_k_staged_grid_not_inflated$", _PROFILER),
    (r"::test_q_boundary_masking_block_sparse_bwd\[document-", _PAST_THE_END),
    (r"test_cross_entropy\[.*289-192-input_dtype0\]", _ULP),
    (r"elementwise_apply\.py --M 129", "reads out of bounds: 16 bytes a thread, of rows that are no multiple of that"),
    (r"/call_(bypass_dlpack|from_jit)\.py|/ampere_gemm_with_fake_tensor\.py", _ROUNDING),
    *blackwell.EXPLAINED,
)
"""Regular expression of a case -> why it doesn't pass, and need not."""

SETTINGS = {
    "MPLBACKEND": "agg",
    "QUACK_CACHE_ENABLED": "0",  # of machine code, which can't be simulated
    "PYTEST_ADDOPTS": "--simulate",  # of the pytests that tests start, too
    "PYTHONUNBUFFERED": "1",
}
"""Of the environment, in which the sources run."""


def suite(path: str, folder: str) -> str:
    """Name the row that a path belongs to, if it was found in a folder."""
    return next((name for pattern, name in SUITES if re.search(pattern, path)), folder)


def not_tried(path: str, arch: str) -> tuple[str, str]:
    """Return the outcome and the reason of a source that is not tried on an architecture; nothing if it is."""
    for pattern, archs, name in HARDWARE:
        if re.search(pattern, path) and arch not in archs:
            return "other hardware", f"for {name}"
    return next(((outcome, f"for {why}") for pattern, outcome, why in NOT_TRIED if re.search(pattern, path)), ("", ""))


def arguments(path: str, arch: str = "sm_90a") -> list[str]:
    """Give what a script is called with on an architecture, a case each."""
    known = ARGUMENTS if arch == "sm_90a" else (*blackwell.ARGUMENTS, *ARGUMENTS)
    return next((calls for pattern, calls in known if re.search(pattern, path)), [""])


def calls(path: str, arch: str = "sm_90a") -> list[str]:
    """Give what a file is called with on an architecture: code after -c, if its functions are called."""
    known = CALLS if arch == "sm_90a" else (*blackwell.CALLS, *CALLS)
    found = next((calls for pattern, calls in known if re.search(pattern, path)), None)
    return arguments(path, arch) if found is None else [shlex.join(["-c", code]) if code else "" for code in found]


def sizes(path: str) -> list[tuple[str, str]]:
    """Give what is replaced in a notebook, and by what."""
    return [(large, small) for pattern, large, small in SIZES if re.search(pattern, path)]


def first(path: str) -> list[str]:
    """Give the scripts that are run before one."""
    return [name for pattern, name in FIRST if re.search(pattern, path)]


def exact(path: str) -> bool:
    """Tell whether a source needs products bit for bit as the hardware makes them."""
    return bool(re.search(EXACT, path))


def raises(path: str) -> str:
    """Give how the error begins that a script ends with if all is right; nothing if it raises none."""
    return next((begin for pattern, begin in RAISES if re.search(pattern, path)), "")


def explained(case: str) -> str:
    """Tell why a case need not pass; nothing if it should."""
    return next((why for pattern, why in EXPLAINED if re.search(pattern, case)), "")
