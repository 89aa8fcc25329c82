"""`cutepy demo`: a layout drawn and all checked, then a GEMM made of them: compiled, checked, run or simulated."""

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from cutepy.extras import MissingPackagesError, require

if TYPE_CHECKING:
    from cutepy.kernels.gemm import GemmConfig

_SIZES = ((4096, 4096, 4096), (1000, 2008, 1544))
_SIMULATED = (264, 520, 512)
_FLUSH = 256 * 2**20


def run(write: Callable[[str], None] = print) -> int:
    """Draw and check layouts, then compile the GEMM, check it, and run it: on a Hopper GPU, or in the simulator.

    Parameters
    ----------
    write : callable
        Takes a line of text.

    Returns
    -------
    int
        Exit status: 0 if all that could be checked here is right.
    """
    failed = _layouts(write) > 0
    write("")
    try:
        require("the GEMM", "cutlass", "torch", "numpy", "tvm_ffi")
    except MissingPackagesError as error:
        write(str(error))
        return 1
    failed |= _compile(write) > 0
    write("")
    failed |= _run(write) > 0
    return int(failed)


def _layouts(write: Callable[[str], None]) -> int:
    """Draw the atom of the GEMM's operands, and compare the WGMMA tutorial's layouts; return the number that differ."""
    from cutepy.cli import conformance
    from cutepy.layouts import sm90
    from cutepy.layouts.render import picture_of, render_text

    atom = sm90.gmma_layout_atom("K", "SW128", 16)
    write("Shared memory of a K-major operand of wgmma, 16 bits, swizzled over 128 bytes:")
    write(render_text(picture_of(atom, bits=16, units=True), width=80))
    write("")
    lines: list[str] = []
    failed = conformance.run(lines.append)
    for computed, line in pairwise(lines):
        if line.endswith("DIFFERS"):
            write(computed)
            write(line)
    write(f"The WGMMA tutorial: {lines[-1]}")
    write("Each of them: cutepy tutorial --check")
    write("What they mean, with pictures and questions: cutepy tutorial")
    return failed


def _compile(write: Callable[[str], None]) -> int:
    """Compile the kernel of the first size and compare it with its configuration; return the number of differences."""
    from cutepy.kernels.gemm import GemmSignature, compile_gemm, select_config
    from cutepy.kernels.gemm.inspection import facts

    half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    config = select_config(half, *_SIZES[0])
    _describe(config, write)
    compiled = compile_gemm(config)
    cost = compiled.cost()
    how = "by an earlier process, and loaded in" if cost.cached else "in"
    write(f"Compiled for sm_90a {how} {cost.total:.2g} s. Meant, and read back from PTX and cubin:")
    read_back = facts(config, compiled)
    width = max(len(fact.name) for fact in read_back)
    for fact in read_back:
        write(f"  {fact.name:<{width}}  {fact.meant}")
        write(f"  {'':<{width}}  {fact.found}  {'equal' if fact.holds else 'DIFFERS'}")
    return sum(not fact.holds for fact in read_back)


def _describe(config: "GemmConfig", write: Callable[[str], None]) -> None:
    write(f"The GEMM D = A B^T, fp16, as configured for M x N x K = {' x '.join(map(str, _SIZES[0]))}:")
    write(f"  output tile {config.tile_m} x {config.tile_n}, {config.stages} stages of K = {config.tile_k}")
    write(f"  {config.warpgroups} consumer warpgroups, {config.accumulator_registers} accumulator registers a thread")
    write(f"  clusters of {config.cluster_m} x {config.cluster_n} CTAs share tiles by multicast")
    write(f"  sA  {config.a_layout}")
    write(f"  sB  {config.b_layout}")


def _run(write: Callable[[str], None]) -> int:
    """Run the GEMM against float64, on a GPU beside cuBLAS; return the number of wrong results."""
    import torch

    from cutepy.suites.measurement import has_hopper

    if not has_hopper():
        found = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        write(f"It runs on Hopper GPUs (compute capability 9.0), and here is {found}: to the simulator, on the CPU.")
        return _simulate(write)
    from cutepy.kernels.gemm.reference import gemm_reference
    from cutepy.ops import gemm
    from cutepy.testing.numerics import gemm_tolerance, relative_error

    write(f"On {torch.cuda.get_device_name()}:")
    wrong = 0
    for m, n, k in _SIZES:
        a = torch.randn((m, k), device="cuda").half()
        b = torch.randn((n, k), device="cuda").half()
        out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float16)
        gemm(a, b, out=out)
        error, bound = relative_error(out, gemm_reference(a, b)), gemm_tolerance(k, 16, "float16")
        verdict = "right" if error <= bound else "WRONG"
        wrong += verdict == "WRONG"
        write(f"  {m} x {n} x {k}: relative error {error:.1e} (bound {bound:.1e}), {verdict}")
        ours, theirs = _time_us(partial(gemm, a, b, out=out)), _time_us(partial(torch.mm, a, b.t(), out=out))
        teraflops = 2e-6 * m * n * k / ours
        write(f"    {ours:.1f} us, {teraflops:.0f} TFLOP/s; cuBLAS {theirs:.1f} us")
    write("For figures by the full protocol: python -m cutepy bench gemm")
    return wrong


def _simulate(write: Callable[[str], None]) -> int:
    """Run the GEMM of a small size in the simulator, against float64; return the number of wrong results."""
    import torch

    from cutepy.frontends import simulate
    from cutepy.kernels.gemm.reference import gemm_reference
    from cutepy.ops import gemm
    from cutepy.runtime.program import HOPPER
    from cutepy.testing.numerics import gemm_tolerance, relative_error

    m, n, k = _SIMULATED
    a, b = torch.randn((m, k)).half(), torch.randn((n, k)).half()
    out = torch.full((m, n), float("nan"), dtype=torch.float16)
    start = time.perf_counter()
    with simulate(arch=HOPPER) as run:
        gemm(a, b, out=out)
    error, bound = relative_error(out, gemm_reference(a, b)), gemm_tolerance(k, 16, "float16")
    verdict = "right" if error <= bound else "WRONG"
    write(f"  {m} x {n} x {k}: relative error {error:.1e} (bound {bound:.1e}), {verdict}")
    instructions, counts = sum(run.instructions.values()), run.stats
    write(f"    {run.launches[0].ctas} CTAs: {instructions} instructions of warps, {counts['wgmma']} MMAs")
    write(f"    all in {time.perf_counter() - start:.1f} s, interpreted from PTX; there is no model of GPU time")
    return int(verdict == "WRONG")


def _time_us(launch: Callable[[], object], repeats: int = 20) -> float:
    """Time single launches with a cold L2 cache; return the median in microseconds."""
    import torch

    flush = torch.empty(_FLUSH, dtype=torch.int8, device="cuda")
    times: list[float] = []
    for _ in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        launch()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)) * 1e3)
    return sorted(times[2:])[repeats // 2]
