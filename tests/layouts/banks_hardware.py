"""Compare the rule of wavefronts with a GPU's counters: run by hand on a Hopper GPU with nvcc and Nsight Compute.

    python -m tests.layouts.banks_hardware                  # 128 patterns of seed 0: a table of mismatches
    python -m tests.layouts.banks_hardware --seed 7 --count 400 --all
    python -m tests.layouts.banks_hardware --expected       # no GPU: what the rule says
    python -m tests.layouts.banks_hardware --compile-only   # no GPU: whether nvcc takes the kernels

Run from the repository's root, with `cutepy` importable; only the standard library is needed beside it. It writes a
program of one kernel for each instruction, compiles it for sm_90a, and runs it under ``ncu``, which must be allowed to
read counters (root, or the driver's NVreg_RestrictProfilingToAdminUsers=0). Each pattern is one launch of one warp,
whose lanes read their addresses from global memory and execute one instruction on shared memory. Compared is the number
of wavefronts, by the counter of loads for ld and ldmatrix (l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld), of stores
for st and stmatrix (.._op_st), and of atomics (.._op_atom); where ncu has no counter for a kind, the sum of all, less
the one that it counts more. Exit status 1 where a pattern differs, 2 where something could not be run.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cutepy.layouts.banks import Kind, wavefronts

COUNTER = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
SUFFIX = {
    "ld": "_op_ld",
    "ldmatrix": "_op_ld",
    "st": "_op_st",
    "stmatrix": "_op_st",
    "atom": "_op_atom",
    "cas": "_op_atom",
}
TILE_BYTES = 32 * 1024
OFF = 0xFFFFFFFF


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction, and the C that issues it with an address `at`; `r` is what keeps its result alive."""

    ptx: str
    kind: Kind
    size: int
    rows: int
    body: str

    @property
    def kernel(self) -> str:
        return "k_" + self.ptx.replace(".", "_").replace("::", "_")


def _move(operation: str, suffix: str, size: int, count: int, constraint: str, type_: str) -> Instruction:
    """A load or store of `count` registers."""
    names = [f"x{i}" for i in range(count)]
    group = "{" + ", ".join(f"%{i + (operation == 'st')}" for i in range(count)) + "}" if count > 1 else ""
    if operation == "ld":
        # All of a value: of one in part the compiler loads a part.
        kept = (lambda x: f"(unsigned)({x} ^ ({x} >> 32))") if constraint == "l" else (lambda x: f"(unsigned){x}")
        outs = ", ".join(f'"={constraint}"({name})' for name in names)
        asm = f'asm volatile("ld.shared.{suffix} {group or "%0"}, [%{count}];" : {outs} : "r"(at));'
        body = f"{type_} {', '.join(names)}; {asm} r = {' + '.join(map(kept, names))};"
    else:
        ins = ", ".join(f'"{constraint}"({name})' for name in names)
        asm = f'asm volatile("st.shared.{suffix} [%0], {group or "%1"};" :: "r"(at), {ins} : "memory");'
        body = f"{type_} {', '.join(f'{name} = ({type_})threadIdx.x' for name in names)}; {asm}"
    return Instruction(f"{operation}.shared.{suffix}", "ld" if operation == "ld" else "st", size, 32, body)


def _matrix(operation: str, count: int, transpose: bool) -> Instruction:
    trans = ".trans" if transpose else ""
    ptx = f"{operation}.sync.aligned.m8n8.x{count}{trans}.shared.b16"
    names = [f"x{i}" for i in range(count)]
    if operation == "ldmatrix":
        group = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
        outs = ", ".join(f'"=r"({name})' for name in names)
        asm = f'asm volatile("{ptx} {group}, [%{count}];" : {outs} : "r"(at));'
        body = f"unsigned {', '.join(names)}; {asm} r = {' + '.join(names)};"
    else:
        group = "{" + ", ".join(f"%{i + 1}" for i in range(count)) + "}"
        ins = ", ".join('"r"(threadIdx.x)' for _ in names)
        body = f'asm volatile("{ptx} [%0], {group};" :: "r"(at), {ins} : "memory");'
    return Instruction(ptx, "ldmatrix" if operation == "ldmatrix" else "stmatrix", 16, 8 * count, body)


def _atom(suffix: str, size: int, constraint: str, type_: str, operands: int) -> Instruction:
    values = ", ".join(f"%{i + 2}" for i in range(operands))
    ins = ", ".join(f'"{constraint}"(({type_})(threadIdx.x + {i}))' for i in range(operands))
    asm = f'asm volatile("atom.shared.{suffix} %0, [%1], {values};" : "={constraint}"(x) : "r"(at), {ins} : "memory");'
    kind: Kind = "cas" if suffix.startswith("cas") else "atom"
    return Instruction(f"atom.shared.{suffix}", kind, size, 32, f"{type_} x; {asm} r = (unsigned)x;")


INSTRUCTIONS = [
    *(
        _move(operation, *form)
        for operation in ("ld", "st")
        for form in (
            ("u16", 2, 1, "h", "unsigned short"),
            ("v2.u16", 4, 2, "h", "unsigned short"),
            ("u32", 4, 1, "r", "unsigned"),
            ("v4.u16", 8, 4, "h", "unsigned short"),
            ("v2.u32", 8, 2, "r", "unsigned"),
            ("u64", 8, 1, "l", "unsigned long long"),
            ("v4.u32", 16, 4, "r", "unsigned"),
            ("v2.u64", 16, 2, "l", "unsigned long long"),
        )
    ),
    *(_matrix(op, count, t) for op in ("ldmatrix", "stmatrix") for count in (1, 2, 4) for t in (False, True)),
    _atom("add.u32", 4, "r", "unsigned", 1),
    _atom("max.u32", 4, "r", "unsigned", 1),
    _atom("exch.b32", 4, "r", "unsigned", 1),
    _atom("cas.b32", 4, "r", "unsigned", 2),
    _atom("cas.b64", 8, "l", "unsigned long long", 2),
    _atom("exch.b64", 8, "l", "unsigned long long", 1),
]


@dataclass(frozen=True)
class Pattern:
    """One instruction with an address for each lane, or each row of matrices."""

    instruction: Instruction
    addresses: tuple[int | None, ...]

    @property
    def expected(self) -> int:
        return wavefronts(self.instruction.kind, self.instruction.size, self.addresses)

    def lanes(self) -> list[int]:
        """Addresses of the 32 lanes: for matrices, the lanes beyond the rows repeat them."""
        given = [OFF if address is None else address for address in self.addresses]
        return [given[lane % len(given)] for lane in range(32)]


def patterns(seed: int, count: int) -> list[Pattern]:
    """Draw patterns, each instruction in turn: strides, neighbours that agree, few or many addresses, lanes off."""
    draw = random.Random(seed)
    return [_pattern(draw, INSTRUCTIONS[i % len(INSTRUCTIONS)]) for i in range(count)]


def _pattern(draw: random.Random, instruction: Instruction) -> Pattern:
    units = TILE_BYTES // instruction.size
    rows = instruction.rows
    family = draw.randrange(5)
    step = draw.choice([1, 2, 3, 4, 5, 8, 9, 16, 32, 33, 64]) * draw.choice([1, 1, 1, 2])
    if family == 0:
        at = [lane * step for lane in range(rows)]
    elif family == 1:  # neighbours agree, at some distance
        drop = draw.choice([1, 2, 3, 4])
        at = [(lane & ~drop) * step for lane in range(rows)]
    elif family == 2:
        pool = [draw.randrange(units) for _ in range(draw.choice([1, 2, 4, 16, 64]))]
        at = [draw.choice(pool) for _ in range(rows)]
    elif family == 3:
        at = [(lane * step) ^ (lane // draw.choice([2, 4, 8])) for lane in range(rows)]
    else:
        at = [lane * step for lane in range(rows)]
        draw.shuffle(at)
    addresses: list[int | None] = [unit % units * instruction.size for unit in at]
    if "matrix" not in instruction.kind and draw.random() < 0.4:
        keep = draw.choice([lambda lane: lane % 2 == 0, lambda lane: lane & 2, lambda lane: draw.random() < 0.5])
        off = [address if keep(lane) else None for lane, address in enumerate(addresses)]
        addresses = off if any(address is not None for address in off) else addresses
    return Pattern(instruction, tuple(addresses))


def source(given: list[Pattern]) -> str:
    """Write the program: a kernel for each instruction, a launch for each pattern."""
    kernels = "\n".join(
        f"""__global__ void {instruction.kernel}(const unsigned *offsets, unsigned *out) {{
  extern __shared__ __align__(1024) unsigned char tile[];
  unsigned offset = offsets[threadIdx.x], r = 0;
  unsigned at = (unsigned)__cvta_generic_to_shared(tile) + offset;
  if (offset != {OFF}u) {{ {instruction.body} }}
  out[threadIdx.x] = r;
}}"""
        for instruction in INSTRUCTIONS
    )
    table = ",\n".join("{" + ", ".join(f"{lane}u" for lane in pattern.lanes()) + "}" for pattern in given)
    launches = "\n".join(
        f"  {pattern.instruction.kernel}<<<1, 32, {TILE_BYTES}>>>(offsets + 32 * {i}, out);"
        for i, pattern in enumerate(given)
    )
    return f"""#include <cstdio>
{kernels}
static const unsigned table[{len(given)}][32] = {{
{table}
}};
int main() {{
  unsigned *offsets, *out;
  cudaMalloc(&offsets, sizeof(table));
  cudaMalloc(&out, 32 * sizeof(unsigned));
  cudaMemcpy(offsets, table, sizeof(table), cudaMemcpyHostToDevice);
{launches}
  cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) {{ printf("%s\\n", cudaGetErrorString(error)); return 2; }}
  return 0;
}}
"""


def measured(text: str, given: list[Pattern]) -> list[float | None]:
    """Read ncu's CSV, of which each launch is a row: the wavefronts by the counter of each one's kind."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise ValueError(f"ncu printed no table:\n{text[-2000:]}")
    rows = [row for row in csv.DictReader(lines[start:]) if row["ID"]]  # the row of units has no ID
    if len(rows) != len(given):
        raise ValueError(f"ncu measured {len(rows)} launches, and there are {len(given)} patterns")
    counts = []
    for row, pattern in zip(rows, given, strict=True):
        if pattern.instruction.kernel not in row["Kernel Name"]:
            raise ValueError(f"launch {row['ID']} is of {row['Kernel Name']}, not {pattern.instruction.kernel}")
        own = row.get(f"{COUNTER}{SUFFIX[pattern.instruction.kind]}.sum")
        every = row.get(f"{COUNTER}.sum")
        counts.append(float(own.replace(",", "")) if own else float(every.replace(",", "")) - 1 if every else None)
    return counts


def run(given: list[Pattern], nvcc: str, ncu: str | None) -> list[float | None]:
    """Compile, and measure unless there is no `ncu`."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "banks")
        program.with_suffix(".cu").write_text(source(given))
        subprocess.run([nvcc, "-arch=sm_90a", "-O1", "-o", program, program.with_suffix(".cu")], check=True)
        if ncu is None:
            return []
        done = subprocess.run(
            [ncu, "--csv", "--page", "raw", "--metrics", f"regex:{COUNTER}.*", str(program)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ValueError(f"ncu ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return measured(done.stdout, given)


def report(given: list[Pattern], counts: Iterable[float | None], *, every: bool) -> int:
    """Print what differs; gives how many do."""
    wrong = 0
    for i, (pattern, count) in enumerate(zip(given, counts, strict=True)):
        differs = count != pattern.expected
        wrong += differs
        if differs or every:
            mark = "DIFFERS" if differs else "equal"
            shown = ",".join("-" if address is None else str(address) for address in pattern.addresses)
            print(f"{i:4} {mark:8} expected {pattern.expected:3} measured {count}  {pattern.instruction.ptx}  {shown}")
    print(f"{len(given)} patterns, {wrong} differ")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=128)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--all", action="store_true", help="print patterns that are equal too")
    parser.add_argument("--expected", action="store_true", help="print what the rule says, and run nothing")
    parser.add_argument("--compile-only", action="store_true", help="compile the kernels, and run nothing")
    options = parser.parse_args()
    given = patterns(options.seed, options.count)
    if options.expected:
        report(given, [pattern.expected for pattern in given], every=True)
        return 0
    needed = [options.nvcc] if options.compile_only else [options.nvcc, options.ncu]
    for tool in needed:
        if shutil.which(tool) is None:
            print(f"need {tool} on the path", file=sys.stderr)
            return 2
    try:
        counts = run(given, options.nvcc, None if options.compile_only else options.ncu)
    except (ValueError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.compile_only:
        print(f"{len(given)} patterns compiled")
        return 0
    return 1 if report(given, counts, every=options.all) else 0


if __name__ == "__main__":
    raise SystemExit(main())
