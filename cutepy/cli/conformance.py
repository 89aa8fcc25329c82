"""`cutepy tutorial --check`: the WGMMA tutorial's tensors, computed, beside the output of C++ CuTe.

The story is that of a GEMM's main loop: a TiledMMA, the shared-memory layouts of A and B from GMMA layout atoms, their
partitions, the descriptors that wgmma reads them by, and the accumulators.
"""

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Literal

from cutepy.layouts import Layout, coalesce, cosize, sm90, tile_to_shape, to_text
from cutepy.layouts.sm90 import GmmaDescriptorIterator, TiledMMA

ATOM = "SM90_64x64x16_F16F16F16_SS"
BITS = 16
TILE_M, TILE_N, TILE_K, STAGES = 128, 128, 64, 3
A_ADDRESS, B_ADDRESS = 0x400, 0xC400
TODAY, THEN = "4.7.0", "3.5.1"


class Page:
    """Writer of computed values beside expected ones, which counts differences.

    Parameters
    ----------
    write : callable
        Takes a line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write
        self.compared = 0
        self.differing = 0

    def say(self, *lines: str) -> None:
        """Write lines."""
        for line in lines:
            self.write(line)

    def compare(self, name: str, computed: object, expected: object, *, release: str = TODAY) -> None:
        """Write a value beside the one that a CUTLASS release's C++ CuTe printed."""
        text, want = (x if isinstance(x, str) else to_text(x) for x in (computed, expected))
        self.compared += 1
        self.differing += text != want
        self.say(f"  {name:<10} {text}", f"  C++ {release:<6} {want}  {'equal' if text == want else 'DIFFERS'}")

    def compare_all(self, name: str, pairs: list[tuple[str, str, str]]) -> None:
        """Write the first of many (place, computed, expected), and all that differ."""
        differing = [pair for pair in pairs if pair[1] != pair[2]]
        self.compared += len(pairs)
        self.differing += len(differing)
        place, computed, expected = pairs[0]
        self.say(
            f"  {name + place:<10} {computed}",
            f"  C++ {TODAY:<6} {expected}  {len(pairs) - len(differing)} of {len(pairs)} blocks and stages equal",
        )
        for place, computed, expected in differing:
            self.say(f"  {name + place:<10} {computed}", f"  C++ {TODAY:<6} {expected}  DIFFERS")


def run(write: Callable[[str], None] = print) -> int:
    """Write every tensor of the tutorial beside its vector, line by line; return 1 unless all are equal, else 0."""
    vectors = json.loads(files("cutepy.cli").joinpath("conformance.json").read_text())
    page = Page(write)
    mma = TiledMMA(sm90.wgmma_traits(ATOM))
    tiled_mma(page, mma, vectors["mma"])
    for name, expected in vectors["atoms"].items():
        major, swizzle = name.split("_")
        operands(page, mma, major, swizzle, expected)
    descriptor(page)
    accumulators(page, mma, vectors)
    page.say("", f"{page.compared - page.differing} of {page.compared} tensors and descriptors equal C++ CuTe's.")
    return int(page.differing > 0)


def tiled_mma(page: Page, mma: TiledMMA, expected: dict[str, str]) -> None:
    """Introduce the TiledMMA."""
    page.say(
        f"TiledMMA of {ATOM}: one warpgroup issues",
        f"  {mma.traits.ptx}",
        f"with A, {TILE_M}x{TILE_K}, and B, {TILE_N}x{TILE_K}, in shared memory in {STAGES} stages, C in registers.",
    )
    page.say(
        "Shared memory: sA and sB. A thread's part: tCsA and tCsB, of modes (MMA, MMA_M or MMA_N, MMA_K, stage); as",
        "descriptors tCrA and tCrB, in steps of 16 bytes; of the accumulators tCgC in memory and tCrC in registers.",
        f"Below each computed value stands what C++ CuTe prints: CUTLASS {TODAY}, and {THEN}, whose printouts the",
        "well-known tutorial shows, and which merged what it could within each mode of a tiled layout.",
        "",
    )
    page.compare("threads", mma.thr_layout_vmnk, expected["thr_layout_vmnk"])
    page.compare("tile MNK", mma.tile_shape, expected["tile_shape"])


def operands(
    page: Page,
    mma: TiledMMA,
    major: Literal["MN", "K"],
    swizzle: Literal["INTER", "SW32", "SW64", "SW128"],
    expected: dict[str, Any],
) -> None:
    """Show A and B tiled from one GMMA layout atom: the layout, its partition, and its descriptors."""
    atom = sm90.gmma_layout_atom(major, swizzle, BITS, pointer_swizzle=True)
    page.say("", f"{major}-major operands, {swizzle}:")
    page.compare("atom", atom, expected["atom"])
    for operand, extent, address in (("A", TILE_M, A_ADDRESS), ("B", TILE_N, B_ADDRESS)):
        smem = tile_to_shape(atom, (extent, TILE_K, STAGES))
        for release, layout in ((TODAY, smem), (THEN, coalesce(smem, (1, 1, 1)))):
            partition, offset = (mma.partition_A if operand == "A" else mma.partition_B)(layout, 0)
            assert offset == 0
            descriptors = describe(mma, operand, layout, major, address)
            page.compare(f"s{operand}", layout, expected[release][f"s{operand}"], release=release)
            page.compare(f"tCs{operand}", partition.layoutA, expected[release][f"tCs{operand}"], release=release)
            page.compare(f"tCr{operand}", descriptors.layout, expected[release][f"tCr{operand}"], release=release)
            if release == TODAY:
                compare_descriptors(page, f"tCr{operand}", descriptors, expected[f"tCr{operand}_at_{address:#x}"])
        if operand == "A":
            page.compare("cosize", cosize(smem), expected["cosize_sA"])


def describe(mma: TiledMMA, operand: str, smem: Any, major: Literal["MN", "K"], address: int) -> GmmaDescriptorIterator:  # noqa: ANN401
    """Return an operand's descriptor iterator, by the method that has its name."""
    method = mma.descriptors_A if operand == "A" else mma.descriptors_B
    return method(smem, major=major, base_address=address)


def compare_descriptors(
    page: Page, name: str, descriptors: GmmaDescriptorIterator, expected: list[list[list[str]]]
) -> None:
    """Compare the descriptor of every block and stage."""
    pairs = [
        (f"[{mn},{k},{stage}]", f"{int(descriptors[mn, k, stage]):#018x}", word)
        for mn, stages in enumerate(expected)
        for stage, words in enumerate(stages)
        for k, word in enumerate(words)
    ]
    page.compare_all(name, pairs)


def descriptor(page: Page) -> None:
    """Explain the first descriptor of the tutorial's A."""
    atom = sm90.gmma_layout_atom("MN", "SW128", BITS, pointer_swizzle=True)
    smem = tile_to_shape(atom, (TILE_M, TILE_K, STAGES))
    first = GmmaDescriptorIterator(smem, major="MN", bits=BITS, mma_shape=(64, 16), base_address=A_ADDRESS)[0, 0, 0]
    page.say("", "The first descriptor of an MN-major, SW128 A:", "", first.explain())


def accumulators(page: Page, mma: TiledMMA, vectors: dict[str, Any]) -> None:
    """Show thread 0's part of C, in registers and in global memory of three leading dimensions."""
    page.say("", "Thread 0 holds of C, by registers and by elements of a matrix in global memory:")
    page.compare("tCrC", mma.fragment_C((TILE_M, TILE_N)), vectors["tCrC"])
    for leading, expected in vectors["tCgC"].items():
        for order, stride in (("column", (1, int(leading))), ("row", (int(leading), 1))):
            partition, offset = mma.partition_C(Layout((TILE_M, TILE_N), stride), 0)
            assert offset == 0
            page.say(f"  {order}-major, leading dimension {leading}:")
            page.compare("tCgC", partition, expected[order])
