"""Pictures by other printers: what C++ CuTe's and the DSL's `print_latex` draw, as tables of cells; and ours.

`python -m tests.oracle.pictures FILE` runs C++ CuTe's printers on `CASES` and compares with ours, and writes what they
drew to FILE where one is named.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutepy.layouts import parse, sm90
from cutepy.layouts.render import picture_of, render_latex
from tests.golden.calls import tiled_copy as our_copy, tiled_mma as our_mma
from tests.layouts.render.readers import read_latex
from tests.oracle.cpp import Case, CppOracle, OracleUnavailableError
from tests.oracle.notation import to_cpp
from tests.oracle.statements import expression, tiled_copy, tiled_mma

Table = list[str]
"""Rows of cells with blanks between: offsets, or THREAD.VALUE; `-` where nothing is drawn."""
Tables = dict[str, Table]

_NODE = re.compile(r"\\node(?:\[fill=(?:[^\[\]]*)\])? at \((-?\d+),(-?\d+)\) \{(.*?)\};")
_OWNER = re.compile(r"\\shortstack\{T(\d+) \\\\ V(\d+)\}")

LAYOUTS = (
    *("8:1", "(4,8):(1,4)", "(4,8):(8,1)", "((2,2),(2,4)):((1,8),(2,16))", "(3,5):(7,2)", "((2,3),4):((12,4),1)"),
    *("(8,8):(9,1)", "(4,(2,2)):(0,(1,3))", "Sw<1,0,2> o 0 o (4,4):(4,1)", "Sw<2,0,3> o 0 o (8,8):(8,1)"),
    *(
        "Sw<2,1,3> o 0 o (8,16):(16,1)",
        "Sw<3,0,-3> o 0 o (8,8):(1,8)",
        "Sw<3,2,3> o 0 o ((8,2),(8,2)):((8,64),(1,128))",
    ),
)
ATOMS = tuple(
    (major, swizzle, kind, bits)
    for kind, bits in (("half_t", 16), ("uint8_t", 8), ("float", 32))
    for major, swizzle in (("K", "SW128"), ("MN", "SW64"), ("K", "SW32"), ("MN", "INTER"))
)
MMAS = (
    *((name, "(1,1,1):(0,0,0)") for name in (
        "SM80_16x8x8_F32F16F16F32_TN", "SM80_16x8x16_F32BF16BF16F32_TN", "SM80_16x8x4_F32TF32TF32F32_TN",
        "SM80_16x8x8_F32TF32TF32F32_TN", "SM80_8x8x4_F64F64F64F64_TN", "SM80_8x8x16_S32S8S8S32_TN",
        "SM80_16x8x16_S32U8S8S32_TN", "SM80_16x8x32_S32S8U8S32_TN_SATURATE", "SM89_16x8x32_F16E4M3E5M2F16_TN",
        "SM90_16x8x16_F64F64F64F64_TN", "SM90_64x8x16_F32F16F16_SS", "SM90_64x8x16_F32F16F16_RS",
        "SM90_64x16x32_F32E4M3E4M3_RS_TN", "SM90_64x8x8_F32TF32TF32_RS_TN",
    )),
    ("SM80_16x8x16_F32F16F16F32_TN", "(2,2,1):(1,2,0)"),
    ("SM80_16x8x16_F32F16F16F32_TN", "(2,2,1):(2,1,0);(32,32,16)"),
    ("SM80_16x8x16_F32F16F16F32_TN", "(1,1,2):(0,0,1)"),
    ("SM80_16x8x8_F16F16F16F16_TN", "(2,1,1):(1,0,0);<_,(2,4,2):(1,4,2),_>"),
    ("SM80_8x8x4_F64F64F64F64_TN", "(1,4,1):(0,1,0)"),
    ("SM90_64x8x16_F32F16F16_RS", "(2,1,1):(1,0,0)"),
)  # fmt: skip
COPIES = (
    ("UniversalCopy<uint128_t>", 16, "tv", "(16,4):(4,1)", "(1,8):(0,1)", ""),
    ("UniversalCopy<uint64_t>", 16, "tv", "(4,8):(1,4)", "(4,1):(1,0)", ""),
    ("UniversalCopy<uint32_t>", 32, "tv", "(8,4):(1,8)", "(2,2):(2,1)", ""),
    ("UniversalCopy<uint8_t>", 8, "tv", "(4,2):(2,1)", "(2,3):(1,2)", ""),
    ("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", 32, "tv", "(8,4):(4,1)", "(1,4):(0,1)", ""),
    ("SM80_CP_ASYNC_CACHEALWAYS<uint32_t>", 16, "tv", "(8,8):(8,1)", "(2,2):(1,2)", ""),
    ("SM75_U32x1_LDSM_N", 16, "tv", "(8,4):(4,1)", "(1,2):(0,1)", ""),
    ("SM75_U32x4_LDSM_N", 16, "tv", "(8,4):(4,1)", "(2,4):(4,1)", ""),
    ("SM75_U16x8_LDSM_T", 16, "tv", "(4,8):(1,4)", "(4,2):(1,4)", ""),
    ("SM90_U32x4_STSM_N", 16, "tv", "(8,4):(4,1)", "(2,4):(4,1)", ""),
    ("SM75_U32x4_LDSM_N", 16, "A", "SM80_16x8x16_F32F16F16F32_TN", "(1,1,1):(0,0,0)", ""),
    ("SM75_U32x4_LDSM_N", 16, "A", "SM80_16x8x16_F32F16F16F32_TN", "(2,2,1):(1,2,0);(32,32,16)", ""),
    ("SM75_U16x8_LDSM_T", 16, "A", "SM80_16x8x16_F32F16F16F32_TN", "(2,1,1):(1,0,0)", ""),
    ("SM75_U32x2_LDSM_N", 16, "B", "SM80_16x8x16_F32F16F16F32_TN", "(1,2,1):(0,1,0)", ""),
    ("SM75_U16x4_LDSM_T", 16, "B", "SM80_16x8x16_F32F16F16F32_TN", "(1,2,1):(0,1,0);(16,32,16)", ""),
    ("UniversalCopy<uint32_t>", 16, "C", "SM80_16x8x16_F32F16F16F32_TN", "(2,2,1):(1,2,0)", ""),
    ("SM75_U32x4_LDSM_N", 16, "A", "SM90_64x8x16_F32F16F16_RS", "(1,1,1):(0,0,0)", ""),
    ("SM90_U32x2_STSM_N", 16, "C", "SM90_64x16x16_F32F16F16_SS", "(1,1,1):(0,0,0)", ""),
    ("SM90_U32x2_STSM_N", 16, "C_atom", "SM90_64x16x16_F32F16F16_SS", "(1,1,1):(0,0,0)", ""),
    ("SM90_U32x4_STSM_N", 16, "C_atom", "SM90_64x32x16_F32F16F16_SS", "(1,1,1):(0,0,0)", ""),
    ("SM90_U16x8_STSM_T", 16, "C_atom", "SM90_64x64x16_F32F16F16_SS", "(1,1,1):(0,0,0)", ""),
    ("SM90_U32x4_STSM_N", 16, "C_atom", "SM80_16x8x16_F32F16F16F32_TN", "(2,1,1):(1,0,0);(32,16,16)", ""),
    ("UniversalCopy<uint32_t>", 16, "S", "SM75_U32x4_LDSM_N", "(8,4):(4,1)", "(2,4):(4,1)"),
    ("UniversalCopy<uint64_t>", 16, "D", "SM90_U16x8_STSM_T", "(8,4):(4,1)", "(4,2):(1,4)"),
)
CASES: tuple[Case, ...] = (
    *(Case("layout", (text,)) for text in LAYOUTS),
    *(Case("gmma_atom", atom) for atom in ATOMS),
    *(Case("mma", operands) for operands in MMAS),
    *(Case("copy", operands) for operands in COPIES),
)


def read_tikz(text: str) -> dict[tuple[int, int], str]:
    """Cells that a printer of NVIDIA's drew, by row and column: offsets, or THREAD.VALUE. Labels are left out."""
    found = {}
    for row, column, content in _NODE.findall(text):
        if owner := _OWNER.fullmatch(content):
            content = f"{owner[1]}.{owner[2]}"
        if re.fullmatch(r"-?\d+|\d+\.\d+", content):
            assert (int(row), int(column)) not in found
            found[int(row), int(column)] = content
    return found


def parted(kind: str, cells: dict[tuple[int, int], str], shape: Sequence[int]) -> Tables:
    """Part a printer's picture into the tables that it shows; `shape` is M, N and K, or M and N."""
    if kind == "mma":
        m, n, k = shape
        return {
            "A": table({(i, j + k + 1): text for (i, j), text in cells.items() if j < 0}, m, k),
            "B": table({(j, i + k + 1): text for (i, j), text in cells.items() if i < 0}, n, k),
            "C": table({place: text for place, text in cells.items() if min(place) >= 0}, m, n),
        }
    m, n = shape
    if kind == "copy":
        return {
            "S": table({place: text for place, text in cells.items() if place[1] < n}, m, n),
            "D": table({(i, j - n - 3): text for (i, j), text in cells.items() if j >= n}, m, n),
        }
    return {"": table(cells, m, n)}


def table(cells: dict[tuple[int, int], str], rows: int, columns: int) -> Table:
    """Write cells row by row; refuse one that is elsewhere."""
    assert all(0 <= i < rows and 0 <= j < columns for i, j in cells), (rows, columns)
    return [" ".join(cells.get((i, j), "-") for j in range(columns)) for i in range(rows)]


def our_object(case: Case) -> tuple[Any, tuple[int, ...]]:
    """cutepy's object of a case, and the shape of its picture."""
    if case.op == "mma":
        mma = our_mma(*case.operands)
        return mma, mma.tile_shape
    if case.op == "copy":
        copy = our_copy(*case.operands)
        return copy, copy.tile_shape
    if case.op == "gmma_atom":
        major, swizzle, _, bits = case.operands
        layout = sm90.gmma_layout_atom(major, swizzle, bits)
    else:
        layout = parse(str(case.operands[0]))
    domain = layout if not hasattr(layout, "layoutA") else layout.layoutA
    extents = [part.size() for part in domain] if isinstance(domain.shape, tuple) else [domain.size(), 1]
    return layout, tuple(extents)


def our_tables(value: Any) -> Tables:
    """Our picture, drawn as LaTeX and read back: of several owners the first, as the printers show it."""
    picture = picture_of(value)
    titles = [grid.title for grid in getattr(picture, "grids", (picture,))]
    found = {}
    for title, (cells, _) in zip(titles, read_latex(render_latex(picture)), strict=True):
        part = re.match(r"([ABC]),|(source|destination)\b", title)
        name = "" if part is None else part[1] or part[2][0].upper()
        rows, columns = (1 + max(place[axis] for place in cells) for axis in (0, 1))
        found[name] = table({place: _first(text) for place, (text, _) in cells.items()}, rows, columns)
    return found


def _first(text: str) -> str:
    owner = re.fullmatch(r"T(\*|\d+)[\d,+-]*\nV(\d+)[\d,&-]*", text)
    return f"{'0' if owner[1] == '*' else owner[1]}.{owner[2]}" if owner else text


def cpp_tables(cases: Sequence[Case], oracle: CppOracle) -> list[Tables]:
    """Tables that C++ CuTe's printers draw."""
    found = []
    printed = oracle.printed([f"print_latex({_cpp(case)});" for case in cases])
    for case, text in zip(cases, printed, strict=True):
        found.append(parted(case.op, read_tikz(text), our_object(case)[1]))
    return found


def _cpp(case: Case) -> str:
    if case.op == "gmma_atom":
        return str(expression(case.op, case.operands))
    write = {"layout": lambda operands: to_cpp(operands[0]), "mma": tiled_mma, "copy": tiled_copy}[case.op]
    return write(case.operands)


def main(arguments: list[str] | None = None) -> int:
    """Draw every case by C++ CuTe and by cutepy, print what differs; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.pictures", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="write what C++ CuTe drew here")
    parser.add_argument("--workdir", type=Path, help="folder for the generated programs (default: a temporary one)")
    options = parser.parse_args(arguments)
    try:
        oracle = CppOracle(options.workdir)
        drawn = cpp_tables(CASES, oracle)
    except (OracleUnavailableError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    rows = [
        {"of": case.op, "in": list(case.operands), "cells": cells} for case, cells in zip(CASES, drawn, strict=True)
    ]
    if options.file:
        options.file.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    wrong = [case for case, cells in zip(CASES, drawn, strict=True) if our_tables(our_object(case)[0]) != cells]
    for case in wrong:
        print(f"{case.op}{case.operands} is drawn otherwise")
    print(f"{len(CASES)} pictures compared, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
