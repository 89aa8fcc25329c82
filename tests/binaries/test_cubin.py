"""Attributes that a cubin states of its kernels."""

import re
import struct

import pytest

from tests.messages import refuses

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

from cutepy.binaries.cubin import read_resources  # noqa: E402
from cutepy.dsl.fakes import Symbols, fake_tensor  # noqa: E402
from cutepy.dsl.program import compile_program  # noqa: E402


@cute.kernel
def reverse_rows(source: cute.Tensor, target: cute.Tensor, dynamic: cutlass.Constexpr):
    """Hold 96 values in registers, since stores to `target` may change what is left to load."""
    thread, _, _ = cute.arch.thread_idx()
    values = cute.make_rmem_tensor((96,), cutlass.Float32)
    for i in cutlass.range(96, unroll_full=True):
        values[i] = source[thread, i]
    if cutlass.const_expr(dynamic):
        # A register array that is indexed at run time can't stay in registers.
        for i in cutlass.range(96, unroll=1):
            target[thread, i] = values[(i * thread) % 96]
    else:
        for i in cutlass.range(96, unroll_full=True):
            target[thread, i] = values[95 - i]


@cute.jit
def launch_reverse(source: cute.Tensor, target: cute.Tensor, dynamic: cutlass.Constexpr, threads: cutlass.Constexpr):
    reverse_rows(source, target, dynamic).launch(grid=(1, 1, 1), block=(threads, 1, 1))


def reverse(*, dynamic, threads):
    matrix = fake_tensor("float32", ("rows", "columns"), Symbols({}), strides=("pitch", 1))
    return compile_program(launch_reverse, [matrix, matrix, dynamic, threads])


@pytest.mark.parametrize("dynamic", [False, True])
def test_local_memory_shows_as_a_stack_frame(dynamic):
    compiled = reverse(dynamic=dynamic, threads=64)
    (resources,) = read_resources(compiled.cubin)
    assert (resources.frame_bytes >= 384) if dynamic else (resources.frame_bytes == 0)
    assert (".local" in compiled.ptx) == dynamic
    assert resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert "reverse_rows" in resources.name
    assert 0 < resources.registers <= 255


def test_too_few_registers_make_the_assembler_spill():
    """A CTA of 1024 threads leaves 64 registers a thread, and the kernel holds 96 values."""
    (roomy,) = read_resources(reverse(dynamic=False, threads=64).cubin)
    crowded = reverse(dynamic=False, threads=1024)
    (resources,) = read_resources(crowded.cubin)
    assert resources.registers <= 64 < roomy.registers
    assert roomy.frame_bytes == 0 < resources.frame_bytes
    assert ".local" not in crowded.ptx, "spills are the assembler's; PTX knows nothing of them"
    assert ".target sm_90a" in crowded.ptx
    assert crowded.cubin[:4] == b"\x7fELF"


@cute.kernel
def spill_doubles(source: cute.Tensor, target: cute.Tensor, n: cutlass.Int32):
    """Hold 160 doubles, whose spills are of several widths, beside an array in local memory."""
    thread, _, _ = cute.arch.thread_idx()
    values = cute.make_rmem_tensor((160,), cutlass.Float64)
    local = cute.make_rmem_tensor((64,), cutlass.Float32)
    for i in cutlass.range(64, unroll=1):
        local[(i * n) % 64] = cutlass.Float32(i)
    for i in cutlass.range(160, unroll_full=True):
        values[i] = source[thread, i]
    cute.arch.sync_threads()
    for i in cutlass.range(160, unroll_full=True):
        target[thread, i] = values[i] * values[(7 * i + 1) % 160] + local[(i + n) % 64].to(cutlass.Float64)


@cute.jit
def launch_doubles(source: cute.Tensor, target: cute.Tensor, n: cutlass.Int32, threads: cutlass.Constexpr):
    spill_doubles(source, target, n).launch(grid=(1, 1, 1), block=(threads, 1, 1))


@pytest.mark.parametrize("threads", [512])
def test_spills_are_what_the_assembler_says(threads, capfd, tmp_path):
    """Spills are told from other local memory, and counted as ptxas -v counts them."""
    matrix = cute.runtime.make_fake_compact_tensor(cutlass.Float64, (threads, 160))
    options = f"--gpu-arch=sm_90a --keep-cubin --dump-dir={tmp_path} --ptxas-options '-v' remarks{{ptx}}"
    try:
        compiled = cute.compile(launch_doubles, matrix, matrix, cutlass.Int32(3), threads, options=options)
    except ValueError as error:
        if "remarks supports selectors" not in str(error):
            raise
        pytest.skip("this version of the DSL doesn't show what its assembler says")
    (resources,) = read_resources(compiled.artifacts.CUBIN)
    shown = capfd.readouterr().err
    if "ptxas info" not in shown:
        pytest.skip("this version of the DSL shows nothing of what its assembler says")
    said = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill", shown)
    assert said, "160 doubles do not fit into 255 registers"
    found = resources.frame_bytes, resources.spill_store_bytes, resources.spill_load_bytes
    assert found == tuple(map(int, said.groups()))
    assert resources.required_threads == (threads, 1, 1)


@pytest.mark.parametrize("data", [b"", b"/tmp/kernel.cubin", b"\x7fELF\x01\x01" + bytes(64)])
def test_bytes_that_are_no_cubin_are_refused(data):
    with refuses(ValueError):
        read_resources(data)


def test_an_elf_without_kernels_is_refused():
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 40, 64)
    struct.pack_into("<HHH", header, 58, 64, 1, 0)
    with refuses(ValueError):
        read_resources(bytes(header) + bytes(64) + b"\0")
