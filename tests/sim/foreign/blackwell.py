"""Catalogue of others' scripts for Blackwell: sizes that fit a CPU, and those that need not pass."""

_DENSE = "--ab_dtype Float16 --c_dtype Float16"
_PAIRS = "--mma_tiler_mn 256,128 --cluster_shape_mn 2,1 --use_2cta_instrs --use_tma_store"
_MX = "--sf_dtype Float8E8M0FNU --sf_vec_size 32"
ARGUMENTS = (
    (r"/tutorial_gemm/fp16_gemm_0\.py$", ["--mnk 256,512,256"]),
    (r"/tutorial_gemm/fp16_gemm_6\.py$", ["--mnk 256,512,128"]),
    (r"/tutorial_gemm/fp16_gemm_\w+\.py$|/fp16_gemm_4_iket\.py$", ["--mnk 512,512,256"]),
    (r"/tutorial_gemm/nvfp4_gemm_\d\.py$", ["--mnkl 256,256,512,1"]),
    (r"/tutorial_tma/tma_v\d\.py$", ["--num_warmup 0 --num_iters 1"]),
    (r"/blackwell/.*/dense_gemm\.py$", [
        "",
        f"{_DENSE} {_PAIRS} --mnkl 256,256,256,1",
        "--ab_dtype BFloat16 --c_dtype BFloat16 --a_major m --b_major n --c_major m --mma_tiler_mn 64,64 "
        "--mnkl 128,128,128,2",
        "--ab_dtype Float8E4M3FN --c_dtype Float16 --mma_tiler_mn 128,128 --cluster_shape_mn 2,1 "
        "--use_2cta_instrs --use_tma_store --mnkl 256,256,256,1",
        "--ab_dtype Int8 --c_dtype Int32 --acc_dtype Int32 --mnkl 256,256,256,1",
        f"{_DENSE} --acc_dtype Float16 --mnkl 256,256,256,1 --use_tma_store",
    ]),
    (r"/blackwell/.*/dense_gemm_persistent\.py$", [
        "",
        f"{_DENSE} {_PAIRS} --mnkl 512,512,256,1",
        "--a_major m --mnkl 256,256,128,1",
        "--b_major n --mnkl 256,256,128,1",
        f"--a_major m --b_major n {_PAIRS} --mnkl 512,512,256,1",
    ]),
    (r"/blackwell/.*/dense_gemm_persistent_dynamic\.py$", ["", f"{_DENSE} {_PAIRS} --mnkl 512,512,256,1"]),
    (r"/blackwell_geforce/.*/dense_gemm\.py$", [
        "--mnkl 256,256,128,1",
        "--mnkl 256,256,128,2 --a_major m --b_major n --c_major m",
    ]),
    (r"/blackwell_geforce/.*/dense_blockscaled_gemm_persistent_\w+\.py$", [
        "--mnkl 256,256,256,1",
        "--mnkl 512,384,256,1",
        f"--mnkl 256,256,256,1 --a_dtype Float8E4M3FN --b_dtype Float8E4M3FN {_MX}",
        f"--mnkl 256,256,256,1 --a_dtype Float8E4M3FN --b_dtype Float4E2M1FN {_MX}",
    ]),
    (r"/blackwell/.*/dense_blockscaled_gemm_persistent\.py$", [
        "",
        _MX,
        f"--a_dtype Float8E4M3FN --b_dtype Float8E4M3FN {_MX} --mma_tiler_mn 256,128 --cluster_shape_mn 2,1",
        f"--a_dtype Float8E4M3FN --b_dtype Float4E2M1FN {_MX}",
        "--mma_tiler_mn 256,256 --cluster_shape_mn 2,1 --mnkl 512,512,256,1",
        "--mma_tiler_mn 128,192 --mnkl 256,384,256,1",
    ]),
    (r"/sm103_dense_blockscaled_gemm_persistent\.py$", [
        "--mnkl 512,512,768,1 --cluster_shape_mn 2,1",
        "--mnkl 256,256,768,1 --cluster_shape_mn 1,1 --mma_tiler_mn 128,128",
    ]),
    (r"/blackwell/.*/fmha\.py$", [
        "--q_shape 1,256,1,128 --k_shape 1,256,1,128",
        "--q_shape 1,256,1,128 --k_shape 1,256,1,128 --is_causal --in_dtype Float8E4M3FN --is_persistent "
        "--lse_calculation",
    ]),
    (r"/blackwell/.*/fmha_bwd\.py$", ["--s_q 256 --s_k 256 --h_q 1 --h_k 1"]),
    (r"/mamba2_ssd\.py$", ["--gbehcdln 1,1,1,2,2,64,128,128"]),
    (r"/mixed_input_fmha_decode\.py$", ["--heads_q 8 --heads_k 1 --seqlen 256"]),
    (r"/mixed_input_fmha_prefill_d256\.py$", ["--q_shape 1,1,256,256 --k_shape 1,1,256,256"]),
    (r"/mixed_input_fmha_prefill_d512\.py$", ["--q_shape 1,1,256,512 --k_shape 1,1,256,512"]),
    (r"/mixed_input_gemm\.py$", [
        "", "--a_dtype Int8 --scale_granularity_m 0 --scale_granularity_k 0 --mnkl 256,128,256,1",
    ]),
    (r"/moe/torch_grouped_mm\.py$", ["--experts 4 --top_k_select 2 --hidden 256 --intermediate 256"]),
    (r"/moe/torch_scaled_grouped_mm\.py$", ["", "--kind nvfp4"]),
    (r"/blackwell/.*/rmsnorm\.py$", ["--M 16 --N 1024 --iterations 1 --warmup_iterations 0"]),
    (r"/primitives/ldmatrix_stmatrix\.py$", [
        "", "--mode b8-roundtrip", "--mode b8-stmatrix-transpose", "--mode b8-ldmatrix-transpose",
    ]),
    (r"/tcgen05/1cta_mma_a_from_tmem\.py$", ["", "--ashift"]),
    (r"/tcgen05/1cta_mma_basic\.py$", [
        "", "--ab_dtype fp8_e4m3", "--mma_shape 128,64,64 --mnk 256,128,64", "--tmem_ld_warp_start 2",
    ]),
    (r"/tcgen05/1cta_mma_mn_major\.py$", ["", "--tile_mn 64,64"]),
    (r"/tcgen05/2cta_mma_blockscale_m128\.py$", ["", "--mnk 128,256,256"]),
    (r"/tcgen05/cp_narrow_a_to_tmem_mma\.py$", ["", "--a-dtype fp4", "--a-dtype fp6"]),
    (r"/tcgen05/tmem_ld_to_stmatrix_transpose\.py$", ["", "--out-dtype fp8_e4m3"]),
    (r"/primitives/tma/tma_load_store\.py$", [
        "",
        "--src_dtype float4_e2m1fn_x2 --dst_dtype float4_e2m1fn_x2 --src_format b4x16 --dst_format b4x16",
        "--src_dtype float6_e3m2fn_x4 --dst_dtype float6_e3m2fn_x4 --src_format b6x16_p32 --dst_format b6x16_p32",
    ]),
)  # fmt: skip
"""Regular expression of a script's path -> what it is called with, each a case of its own, on Blackwell."""

_PERSISTENT = (
    "matmul_kernel_{0}.configs[1:] = []; a, b = torch.randn(2, 384, 256, device='cuda').half(); "
    "torch.testing.assert_close(matmul_{0}(a, b, {1}), a @ b.T, atol=0.01, rtol=0.01)"
)
_CONVOLUTION = "(conv2d_{0}_fixed, 2, 64, 10, 10, 64, 3, 3, {1}, 1)"
CALLS = (
    (r"/tutorials/gluon/06-tcgen05\.py$", [
        "[test_tmem_example_kernel(m, 128, warps) for m, warps in ((64, 4), (128, 4), (256, 8))]",
        "[test_small_mma(128, 128, 128, in_tmem, commit, 4) for in_tmem in (False, True) for commit in (False, True)]",
        "test_small_mma(64, 256, 256, False, True, 4); test_small_mma(256, 64, 64, True, True, 8)",
        "[test_blocked_matmul(208, 208, 304, 64, 64, 64, transposed, 4) for transposed in (False, True)]",
        "test_blocked_matmul(208, 208, 304, 128, 128, 128, True, 8)",
        "[test_blocked_matmul_pipelined(208, 208, 304, *rest) for rest in ((64, 64, 64, 4), (128, 128, 128, 8))]",
    ]),
    (r"/tutorials/gluon/07-persistence\.py$", [
        "[test_pipelined_matmul(144, 288, 400, 128, 256, 64, *rest) for rest in ((2, 8), (3, 4))]",
        "[test_persistent_matmul(144, 288, 400, 128, 256, 64, 2, 8, one) for one in schedulers]",
        "[test_persistent_matmul_pipelined(208, 416, 304, 64, 64, 64, 3, 4, one) for one in schedulers]",
    ]),
    (r"/tutorials/gluon/08-warp-specialization\.py$", [
        "[test_elementwise_add_warp_specialized(100, 240, 32, 64, *rest) for rest in ((1, 1, 4), (2, 2, 8))]",
        "[test_matmul_warp_specialized(208, 416, 304, 128, 256, 64, *rest) "
        "for rest in ((2, 4, 4, t7.schedulers[0]), (3, 4, 4, t7.schedulers[1]))]",
    ]),
    (r"/tutorials/gluon/09-tma-gather-scatter\.py$", [
        "[test_async_gather(8, 16, y, torch.bfloat16, 64, 64, None) for y in (-16, 0, 48)]",
        "test_async_gather(128, 128, 0, torch.float32, 256, 256, None)",
        "[test_async_scatter(8, 16, y, torch.bfloat16, 64, 64, None) for y in (0, 48)]",
        "test_async_scatter(128, 128, 0, torch.float32, 256, 256, None)",
        "test_matmul_fused_gather_scatter(256, 256, 512, 128, 128, 64, 3)",
    ]),
    (r"/tutorials/gluon/10-tcgen05-copy\.py$", [
        "[test_tcgen05_copy_nvmma_shared(128, 64, n, torch.float32, 32 * n // 16) for n in (16, 32, 64)]",
        "test_matmul_accumulate(256, 256, 256, 128, 128, 64, 3, torch.float16)",
    ]),
    (r"/tutorials/gluon/11-tcgen05-mma-scaled\.py$", [
        *(f"test_{kernel}(256, 256, 512, '{a}', '{b}', 128, 128)" for kernel, a, b in (
            ("simple_mma_scaled", "mxfp8", "mxfp8"), ("simple_mma_scaled", "mxfp4", "mxfp8"),
            ("simple_mma_scaled", "nvfp4", "nvfp4"), ("mma_scaled_contig", "mxfp4", "mxfp4"),
            ("mma_scaled_packed_block", "mxfp8", "mxfp4"), ("mma_scaled_tcgen05_copy", "nvfp4", "nvfp4"),
            ("mma_scaled_tcgen05_copy", "mxfp8", "mxfp8"),
        )),
        *(f"test_mma_scaled_pipelined({m}, {n}, {k}, '{a}', '{b}', mma_scaled_{kernel}_kernel)"
          for kernel in ("pipelined", "warp_specialized") for m, n, k, a, b in (
            (128, 128, 640, "mxfp8", "mxfp8"), (304, 304, 640, "mxfp4", "mxfp4"),
            (128, 256, 512, "mxfp8", "mxfp4"), (256, 512, 1152, "nvfp4", "nvfp4"),
        )),
    ]),
    (r"/tutorials/gluon/12-cluster-launch-control\.py$", ["[test_op(520, 520, 200, clc) for clc in (True, False)]"]),
    (r"/tutorials/gluon/13-conv-im2col\.py$", [
        *(f"test_tma_im2col_{one}()" for one in ("simple", "padded", "offset", "multi_batch", "multi_batch_padded")),
        "[test_conv2d_tma_im2col(1, 16, 16, 64, 64, 3, 3, *rest) for rest in ((1, 1), (2, 0))]",
    ]),
    (r"/tutorials/gluon/14-multicta\.py$", [
        "test_multicta_softmax_f32(64, 256)", "test_two_cta_tcgen05()", "test_tma_multicast_copy()",
        "test_tma_tcgen05()", "test_matmul_multicta()",
    ]),
    (r"/examples/gluon/01-attention-forward\.py$", [
        f"test_op(1, 1, {keys}, {dim}, {causal}, torch.float16, False)"
        for keys, dim, causal in ((1024, 64, True), (512, 128, False))
    ]),
    (r"/examples/gluon/02-conv-fprop\.py$", [f"test_op{_CONVOLUTION.format('fprop', stride)}" for stride in (1, 2)]),
    (r"/examples/gluon/02-conv-dgrad\.py$", [f"test_op{_CONVOLUTION.format('dgrad', stride)}" for stride in (1, 2)]),
    (r"/examples/gluon/02-conv-wgrad\.py$", [f"test_op{_CONVOLUTION.format('wgrad', stride)}" for stride in (1, 2)]),
    (r"/examples/gluon/03-matmul-multicta\.py$", [
        f"test_matmul_matches_torch(500, 600, 200, 128, {n}, 64, {minor}, 8, {layout}, {stages}, 2, 32, 4)"
        for n, minor, layout, stages in ((128, 0, "()", 2), (256, 1, "((1, 0),)", 4), (128, 0, "((1, 0), (2, 0))", 4))
    ]),
    (r"/examples/gluon/04-2cta-block-scale-matmul\.py$", [
        f"test_mma_scaled_warp_specialized({m}, {n}, {k}, '{a}', '{b}', {rest})" for m, n, k, a, b, rest in (
            (128, 128, 640, "mxfp8", "mxfp8", "1, 128, 64, 5"), (500, 600, 640, "nvfp4", "nvfp4", "2, 256, 64, 5"),
            (256, 256, 640, "mxfp8", "mxfp4", "2, 128, 64, 6"), (500, 600, 704, "mxfp4", "mxfp4", "1, 256, 256, 3"),
        )
    ]),
    (r"/06-fused-attention\.py$", [
        f"_attn_fwd.configs[1:] = []; test_op(1, 1, 256, 64, {causal}, {specialised}, '{mode}', 'triton-{kind}')"
        for causal, specialised, mode, kind in (
            (True, False, "bwd", "fp16"), (False, True, "bwd", "fp16"), (True, True, "fwd", "fp8"),
        )
    ]),
    (r"/09-persistent-matmul\.py$", [
        _PERSISTENT.format(kernel, specialised)
        for kernel in ("tma", "tma_persistent", "descriptor_persistent") for specialised in (False, True)
    ]),
    (r"/10-block-scaled-matmul\.py$", [
        f"validate_block_scaled(256, 512, 512, block_scale_type='{kind}')"
        for kind in ("nvfp4", "mxfp4", "mxfp8", "mixed")
    ]),
)  # fmt: skip
"""Regular expression of a file's path -> code that calls its functions, as `catalogue.CALLS`, on Blackwell."""

_PAST = "reads one past the end of an array, once no tile is left"
_FREED = "frees tensor memory before the last product uses it"
_WARP = "threads of a warp give different addresses to tcgen05.ld"
_UNSET = "the tutorial gives cuBLAS's scales no value for types that cuBLAS does not multiply"
_ULP = "allows less than one ulp of bfloat16: 3 of 65536 lie between two"
EXPLAINED = (
    (r"/blockwise_gemm/masked_grouped_gemm\.py", _PAST),
    (r"/blackwell/.*/fmha_bwd\.py", _FREED),
    (r"/mixed_input_fmha_prefill_d512\.py", _WARP),
    (r"/10-block-scaled-matmul\.py -c .*(mxfp4|mixed)", _UNSET),
    (r"/09-tma-gather-scatter\.py -c .*test_matmul_fused", _ULP),
)
"""Regular expression of a case -> why it doesn't pass, and need not."""
