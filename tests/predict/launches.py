"""Launches that nobody fitted the model to: timed on a GPU, and predicted without one.

    python -m tests.predict.launches --time FILE       # on a Hopper GPU: time them and write FILE
    python -m tests.predict.launches FILE [--only WORD]  # anywhere: predict them, and compare with FILE

`launches_h200.json` is such a file, the means of two runs on an H200 on 2026-12-01: intervals (`us`, of each run
`runs_us`) and kernels' own durations.
`kernels.json.xz` has the PTX and the arguments of kernels in CUDA C++ (by nvcc 13.0) and of those of Triton's tutorials
(by Triton 3.9); `OURS` are operations of this package. Each is timed as `cutepy bench` times: launches back to back in
a graph, on sets of buffers that together exceed L2. Kernels' own durations are CUPTI's, where it loads. Intervals of
launches below 8 us differ by up to 14% between runs, kernels' own durations by 1%: errors of both are printed.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

KERNELS = Path(__file__).parent / "kernels.json.xz"
_LEAST_SETS, _CACHE_BYTES = 2, 60 * 10**6

Call = Callable[[], Any]


def _attention(torch: Any, device: str, head: int, tokens: int, causal: bool) -> Call:
    from cutepy.ops import attention

    q, k, v = (torch.randn(16384 // tokens, tokens, 2048 // head, head, device=device).bfloat16() for _ in range(3))
    return lambda: attention(q, k, v, causal=causal)


def _decode(torch: Any, device: str, batch: int, keys: int, heads: int, kv_heads: int) -> Call:
    from cutepy.ops import attention_decode

    q = torch.randn(batch, 1, heads, 128, device=device).bfloat16()
    k, v = (torch.randn(batch, keys, kv_heads, 128, device=device).bfloat16() for _ in range(2))
    return lambda: attention_decode(q, k, v)


def _gemm(torch: Any, device: str, m: int, n: int, k: int, dtype: str = "bfloat16") -> Call:
    from cutepy.ops import gemm

    a, b = (torch.randn(rows, k, device=device).to(getattr(torch, dtype)) for rows in (m, n))
    return lambda: gemm(a, b, out_dtype=torch.bfloat16)


def _grouped(torch: Any, device: str, groups: int, rows: int, n: int, k: int) -> Call:
    from cutepy.ops import grouped_gemm

    a = torch.randn(groups * rows, k, device=device).bfloat16()
    b = torch.randn(groups, n, k, device=device).bfloat16()
    ends = (torch.arange(1, groups + 1, dtype=torch.int32) * rows).to(device)
    return lambda: grouped_gemm(a, b, offs=ends)


def _rows(torch: Any, device: str, name: str, rows: int, columns: int) -> Call:
    from cutepy import ops

    x = torch.randn(rows, columns, device=device).bfloat16()
    weight = torch.ones(columns, dtype=torch.bfloat16, device=device)
    match name:
        case "rms_norm":
            return lambda: ops.rms_norm(x, (columns,), weight)
        case "layer_norm":
            return lambda: ops.layer_norm(x, (columns,), weight)
        case "topk":
            return lambda: ops.topk(x, 8)
        case _:
            return lambda: getattr(ops, name)(x)


OURS: dict[str, tuple[Callable[..., Call], tuple[Any, ...]]] = {
    **{f"gemm {m}x{n}x{k}": (_gemm, (m, n, k)) for m, n, k in (
        (1, 4096, 4096), (4, 14336, 4096), (16, 4096, 4096), (128, 4096, 4096), (1024, 1024, 1024), (2048, 2048, 2048),
        (4096, 4096, 512), (4096, 4096, 4096), (8192, 8192, 8192), (777, 1111, 3000),
    )},
    "gemm fp8 16x7168x4096": (_gemm, (16, 7168, 4096, "float8_e4m3fn")),
    "gemm fp8 4096x4096x4096": (_gemm, (4096, 4096, 4096, "float8_e4m3fn")),
    "grouped_gemm 8 of 64x4096x2048": (_grouped, (8, 64, 4096, 2048)),
    "grouped_gemm 8 of 1024x4096x2048": (_grouped, (8, 1024, 4096, 2048)),
    **{
        f"attention {head}, {tokens} tokens{', causal' * causal}": (_attention, (head, tokens, causal))
        for head in (64, 128) for tokens in (512, 4096) for causal in (False, True)
    },
    "attention_decode 16 of 4096 keys": (_decode, (16, 4096, 32, 8)),
    "attention_decode 1 of 32768 keys": (_decode, (1, 32768, 32, 8)),
    **{
        f"{name} {rows}x{columns}": (_rows, (name, rows, columns))
        for name in ("rms_norm", "layer_norm", "softmax", "log_softmax", "swiglu", "topk")
        for rows, columns in ((128, 4096), (4096, 1024), (8192, 8192))
    },
}  # fmt: skip
"""By name what makes a call on a device, and its arguments."""


def recorded() -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the launches of kernels in PTX, and the PTX by name."""
    with lzma.open(KERNELS, "rt") as file:
        found = json.load(file)
    return found["launches"], found["texts"]


def filled(kind: str, size_bytes: int, seed: int) -> Any:
    """Return a buffer's values as a numpy array: random, or zeros of outputs."""
    import numpy as np

    random = np.random.default_rng(seed)
    if kind.startswith("ids"):
        return random.integers(0, int(kind[3:]), size_bytes // 4, dtype=np.int32)
    if kind == "u8":
        return np.resize(random.integers(0, 256, 1 << 20, dtype=np.uint8), size_bytes)
    if kind in ("f32", "bf16"):
        words = random.integers(0, 1 << 16, 1 << 15, dtype=np.uint16) & 0xBFFF | 0x3000  # below 2, for both
        return np.resize(words, size_bytes // 2)
    return np.zeros(size_bytes, np.uint8)


class Driver:
    """Launches of kernels in PTX by CUDA's driver, on torch's stream."""

    def __init__(self) -> None:
        from tests.time.machine import Gpu

        self._gpu = Gpu()
        self._functions: dict[str, Any] = {}

    def call(self, entry: dict[str, Any], text: str, tensors: list[Any]) -> None:
        """Launch."""
        import ctypes

        import torch

        from cutepy.runtime.launch_structures import MAX_DYNAMIC_SMEM, LaunchConfig
        from tests.time.machine import _assembled, _ptxas

        gpu, name = self._gpu, entry["text"]
        if name not in self._functions:
            tool, module, function = _ptxas(), ctypes.c_void_p(), ctypes.c_void_p()
            image = text.encode() + b"\0" if tool is None else _assembled(tool, text)
            gpu.call("cuModuleLoadData", ctypes.byref(module), image)
            gpu.call("cuModuleGetFunction", ctypes.byref(function), module, entry["kernel"].encode())
            self._functions[name] = function
        function = self._functions[name]
        if entry["smem"] > 48 << 10:
            gpu.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SMEM, entry["smem"])
        extents = (ctypes.c_uint32 * 3)(*entry["grid"]), (ctypes.c_uint32 * 3)(entry["block"], 1, 1)
        config = LaunchConfig(*extents, entry["smem"], torch.cuda.current_stream().cuda_stream, None, 0)
        left = iter(tensors)
        types = {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "f32": ctypes.c_float}
        values = [
            ctypes.c_uint64(next(left).data_ptr()) if kind == "buffer" else types[kind](*rest)
            for kind, *rest in entry["args"]
        ]
        table = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        gpu.call("cuLaunchKernelEx", ctypes.byref(config), function, table, None)


def _timed_calls() -> Iterator[tuple[str, Callable[[], list[Call]]]]:
    """Yield names, and what makes calls on the GPU, one for each set of buffers."""
    import torch

    driver: list[Driver] = []
    launches, texts = recorded()

    def of_kernel(entry: dict[str, Any]) -> list[Call]:
        if not driver:
            driver.append(Driver())
        buffers = [(kind, size) for what, *rest in entry["args"] if what == "buffer" for size, kind in [rest]]
        sets = max(_LEAST_SETS, _CACHE_BYTES // sum(size for _, size in buffers) + 1)
        calls = []
        for _ in range(sets):
            tensors = [torch.from_numpy(filled(kind, size, n)).cuda() for n, (kind, size) in enumerate(buffers)]
            calls.append(lambda tensors=tensors: driver[0].call(entry, texts[entry["text"]], tensors))
        return calls

    def of_ours(make: Callable[..., Call], arguments: tuple[Any, ...]) -> list[Call]:
        before = torch.cuda.memory_allocated()
        first = make(torch, "cuda", *arguments)
        own = max(1, torch.cuda.memory_allocated() - before)
        return [first, *(make(torch, "cuda", *arguments) for _ in range(max(_LEAST_SETS, _CACHE_BYTES // own + 1) - 1))]

    for entry in launches:
        yield entry["name"], lambda entry=entry: of_kernel(entry)
    for name, (make, arguments) in OURS.items():
        yield name, lambda make=make, arguments=arguments: of_ours(make, arguments)


def _durations(calls: list[Call]) -> list[tuple[str, float]] | None:
    """Return the kernels of a call and their own microseconds, medians of ten calls."""
    import torch

    from cutepy.profiling import profile

    try:
        with profile() as found:
            for n in range(10):
                calls[n % len(calls)]()
            torch.cuda.synchronize()
        records = [r for r in found.recording.records if r.kind == "kernel"]
        each = len(records) // 10
        return [
            (records[n].name[:60], statistics.median(r.duration_ns for r in records[n::each]) / 1e3)
            for n in range(each)
        ]
    except Exception:
        return None


def work(part: int, parts: int) -> None:
    """Compile a part of the launches, wait for the turn to time, and print a line of JSON for each."""
    import torch

    from cutepy.benchmark import Protocol, compare

    chosen = [each for n, each in enumerate(_timed_calls()) if n % parts == part]
    failed: dict[str, str] = {}
    for name, make in chosen:
        try:
            make()[0]()
            torch.cuda.synchronize()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error)[:300]}"
    torch.cuda.empty_cache()
    print(json.dumps({"ready": part}), flush=True)
    if not sys.stdin.readline():  # nobody waits any more
        return
    protocol = Protocol(rounds=5, turn_us=1000.0, max_launches=60)
    for name, make in chosen:
        if name in failed:
            print(json.dumps({"name": name, "error": failed[name]}), flush=True)
            continue
        try:
            calls = make()
            run = {"it": lambda index, calls=calls: calls[index]()}
            us = compare(run, sets=len(calls), protocol=protocol)["it"].device_us
            print(json.dumps({"name": name, "us": us, "sets": len(calls), "kernels": _durations(calls)}), flush=True)
            del calls, run
            torch.cuda.empty_cache()
        except Exception as error:
            print(json.dumps({"name": name, "error": f"{type(error).__name__}: {str(error)[:300]}"}), flush=True)


def measure(out: Path, parts: int = 8) -> None:
    """Time all launches: parts of them compile together, and are timed one after another."""
    commands = [[sys.executable, "-m", "tests.predict.launches", "--work", str(n), str(parts)] for n in range(parts)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in commands
    ]
    found: dict[str, Any] = {}
    for worker in workers:
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith('{"ready"'):
                break
    out.parent.mkdir(parents=True, exist_ok=True)
    for worker in workers:
        assert worker.stdin is not None
        assert worker.stdout is not None
        with suppress(BrokenPipeError):
            worker.stdin.write("\n")
            worker.stdin.close()
        for line in worker.stdout:
            if line.startswith("{"):
                made = json.loads(line)
                name = made.pop("name")
                found[name] = made
                print(f"{name:45} {made.get('us', float('nan')):9.2f} us {made.get('error', '')}", flush=True)
                out.write_text(json.dumps(found, indent=1) + "\n")
        worker.wait()


def predict_kernel(entry: dict[str, Any], text: str, gpu: str) -> list[Any]:
    """Predict a kernel in PTX."""
    import numpy as np

    import cutepy

    arguments = []
    for what, *rest in entry["args"]:
        if what != "buffer":
            arguments.append(np.float32(rest[0]) if what == "f32" else rest[0])
        elif rest[1].startswith("ids") or rest[1] == "u8" or rest[0] < 1 << 20:
            arguments.append(filled(rest[1], rest[0], 0))
        else:
            arguments.append(np.zeros(rest[0], np.uint8))
    with cutepy.simulate(time=gpu) as run:
        cutepy.load_ptx(text).launch(
            entry["kernel"], tuple(entry["grid"]), entry["block"], arguments, smem=entry["smem"]
        )
    return run.predictions


def predict_ours(name: str, gpu: str) -> list[Any]:
    """Predict an operation of this package."""
    import torch

    import cutepy

    make, arguments = OURS[name]
    call = make(torch, "cpu", *arguments)
    with cutepy.simulate(time=gpu) as run:
        call()
    return run.predictions


def compared(measured: dict[str, Any], gpu: str, only: str = "") -> Iterator[dict[str, Any]]:
    """Yield of each measured launch its name, its interval and its kernels' own time, and what bounds it."""
    launches, texts = recorded()
    by_name = {entry["name"]: entry for entry in launches}
    for name, made in measured.items():
        if only not in name or "us" not in made:
            continue
        began = time.perf_counter()
        try:
            entry = by_name.get(name)
            found = predict_ours(name, gpu) if entry is None else predict_kernel(entry, texts[entry["text"]], gpu)
        except Exception:
            traceback.print_exc(limit=3, file=sys.stdout)
            continue
        yield {
            "name": name,
            "us": sum(each.us for each in found),
            "measured": made["us"],
            "own_us": sum(each.own_us for each in found),
            "own_measured": sum(us for _, us in made.get("kernels") or ()),
            "bound": "; ".join(each.bound for each in found),
            "seconds": time.perf_counter() - began,
        }


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--time", type=Path)
    parser.add_argument("--work", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="")
    parser.add_argument("--gpu", default="h200")
    asked = parser.parse_args()
    if asked.work:
        work(*asked.work)
    elif asked.time:
        measure(asked.time)
    elif asked.file:
        errors: dict[str, list[float]] = {"intervals": [], "own durations": []}
        for row in compared(json.loads(asked.file.read_text()), asked.gpu, asked.only):
            pairs = ((row["measured"], row["us"]), (row["own_measured"], row["own_us"]))
            print(f"{row['name']:45}", end="")
            for found, (measured, us) in zip(errors.values(), pairs, strict=True):
                if measured:
                    found.append(abs(us / measured - 1))
                    print(f" {measured:9.2f} {us:9.2f} {us / measured - 1:+7.1%}", end="")
            print(f"  {row['bound']} ({row['seconds']:.1f} s)", flush=True)
        for name, found in errors.items():
            if found:
                ordered = sorted(found)
                most = ordered[int(0.9 * len(found))]
                print(f"{len(found)} {name}: median {statistics.median(found):.1%}, 90% {most:.1%}")
    else:
        parser.error("give --time FILE on a GPU, or a FILE that it wrote")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
