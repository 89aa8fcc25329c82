"""The documentation's pictures, drawn by the library: `python docs/pictures.py` writes them to docs/pictures.

A test draws them again and compares, so that they are what the library draws today.
"""

import tomllib
from collections.abc import Callable
from html import escape
from pathlib import Path

from cutepy.kernels.gemm import GemmConfig, GemmSignature
from cutepy.layouts import (
    Layout,
    bank_conflicts,
    blocked_product,
    compare,
    composition,
    logical_divide,
    parse,
    raked_product,
    steps,
    tile_to_shape,
    to_linear,
    warp_access,
    zipped_divide,
)
from cutepy.layouts.render import Grid, Picture, picture_of, render_svg
from cutepy.layouts.sm80 import mma_traits
from cutepy.layouts.sm90 import (
    GmmaDescriptorIterator,
    SwizzleMode,
    TiledMMA,
    gmma_layout_atom,
    ldmatrix_traits,
    make_copy_atom,
    make_tiled_copy_A,
    make_tma_copy,
    stmatrix_traits,
)
from cutepy.layouts.sm90.arch import SWIZZLE_MODES
from cutepy.layouts.sm100 import tmem_accumulator

FOLDER = Path(__file__).with_name("pictures")
FILL = "#eef3f8"


def one(picture: Grid | Picture, title: str | None = None) -> Grid:
    """Return a picture that is a single grid, under a title of its own."""
    assert isinstance(picture, Grid)
    return picture if title is None else picture.but(title=title)


def overview() -> Picture:
    """Draw what cutepy is for: layouts computed, memory seen, threads known."""
    divided = steps(logical_divide, Layout((8, 8), (8, 1)), (4, 4)).grids[-1]
    tiles = divided.but(title="compute: (8,8):(8,1) in tiles of 4 x 4")
    memory = one(picture_of(gmma_layout_atom("K", "SW128", 16), bits=16, units=True), "see: 16-byte units under SW128")
    threads = one(picture_of(Layout(((4, 8), 2), ((16, 1), 8)), tv=True, tile=(8, 8)), "know: which thread holds what")
    return Picture(tuple(grid.but(caption=()) for grid in (tiles, memory, threads)))


def swizzle() -> Picture:
    """Draw eight rows of 128 bytes, as they are and swizzled."""
    rows = Layout((8, 64), (64, 1))
    swizzled = gmma_layout_atom("K", "SW128", 16)
    plain = picture_of(rows, bits=16, units=True, title=f"{rows}: a column is in four banks")
    spread = picture_of(swizzled, bits=16, units=True, title=f"{swizzled}: in all 32")
    assert isinstance(plain, Grid)
    assert isinstance(spread, Grid)
    return Picture((plain, spread), "8 x 64 halves, a cell for each 16 bytes, a colour for each four banks")


def hierarchy() -> Grid | Picture:
    """Draw a layout of rank 3 with hierarchical modes."""
    return picture_of(tile_to_shape(Layout((2, 3), (3, 1)), (4, 6, 2)))


def fragment() -> Grid | Picture:
    """Draw the accumulator of one warp of a wgmma with N = 8."""
    layout = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    return picture_of(layout, tv=True, tile=(16, 8), names=("M", "N"), title="A warp's part of a 64x8 accumulator")


def divide() -> Picture:
    """Draw a zipped_divide step by step."""
    return steps(zipped_divide, Layout((4, 6)), (2, 3))


def descriptor() -> Grid | Picture:
    """Draw what the descriptor of an MN-major operand makes wgmma read."""
    smem = tile_to_shape(gmma_layout_atom("MN", "SW128", 16), (64, 64))
    iterator = GmmaDescriptorIterator(smem, major="MN", bits=16, mma_shape=(64, 16), base_address=0x400)
    return picture_of(iterator[0, 0])


def comparison() -> Picture:
    """Draw where two layouts differ."""
    return compare(Layout((4, 4), (4, 1)), "Sw<1,0,2> o 0 o (4,4):(4,1)")


def conflict() -> Grid | Picture:
    """Draw a warp's read of four columns of a tile whose rows are 128 bytes."""
    read = warp_access("ld", lambda lane: (lane % 8, lane // 8))
    return picture_of(bank_conflicts(read, Layout((8, 8), (32, 1)), 32))


def products() -> Picture:
    """Draw the two ways to repeat a block by mode."""
    block, grid = Layout((2, 2)), Layout((2, 3))
    return Picture(
        tuple(
            one(picture_of(product(block, grid)), f"{product.__name__} {product(block, grid)}")
            for product in (blocked_product, raked_product)
        )
    )


def atoms() -> Picture:
    """Draw the swizzled K-major atoms of 16-bit elements, by units of 16 bytes."""

    def atom(mode: SwizzleMode) -> Grid:
        layout = gmma_layout_atom("K", mode, 16)
        return one(picture_of(layout, bits=16, units=True), f"{mode} {layout}").but(caption=())

    return Picture(tuple(map(atom, SWIZZLE_MODES[1:])), "K-major atoms, 16 bits: a cell is a unit of 16 bytes")


def accumulators() -> Picture:
    """Draw where accumulators of 128 and 64 rows lie in tensor memory, of one CTA and of a pair's."""

    def tensor(m: int, ctas: int, title: str) -> Grid:
        grid = one(picture_of(tmem_accumulator(m, 32, cta_group=ctas)))
        assert grid.coarser is not None
        return grid.coarser().but(title=title, caption=())

    grids = tensor(128, 1, "M = 128"), tensor(64, 1, "M = 64"), tensor(128, 2, "M = 128 of two CTAs")
    return Picture(grids, "D of N = 32 in tensor memory: lanes down, columns across")


def boxes() -> Grid:
    """Draw a tile that takes two boxes of TMA."""
    tile = tile_to_shape(gmma_layout_atom("K", "SW32", 32), (8, 16))
    return one(picture_of(make_tma_copy(Layout((64, 64), (64, 1)), tile, dtype="f32")))


def bases() -> Grid:
    """Draw a swizzled tile as a matrix over F2: what each bit of the coordinate adds to the offset."""
    atom = gmma_layout_atom("K", "SW128", 16)
    return one(picture_of(to_linear(atom, ["row", "column"]), title=f"{atom} over F2"))


ROOMS = {
    "cli": "the command line",
    "suites": "problems that `cutepy bench` times",
    "explorer": "the page of `cutepy explore`",
    "testing": "strategies, tolerances, pytest plugin",
    "nn": "PyTorch layers",
    "ops": "PyTorch operations",
    "aot": "extensions and C libraries",
    "kernels": "GEMM, attention, rows, groups",
    "tune": "search for the fastest candidate",
    "profiling": "where the time goes",
    "benchmark": "the timing protocol",
    "anatomy": "parts of a kernel, explained",
    "frontends": "DSL, Triton, PTX, CUDA C++, torch's device",
    "predict": "times of kernels without a GPU",
    "sim": "simulator and sanitizer",
    "device": "blocks of kernels, traced",
    "host": "compile, cache, launch",
    "dsl": "adapter to the CuTe DSL",
    "epilogues": "graphs of Python functions",
    "runtime": "loader of compiled programs",
    "binaries": "ptxas; cubin and SASS, read",
    "layouts": "algebra, notation, pictures, atoms",
    "extras": "optional packages",
    "text_tables": "tables as text",
}
"""A line for each room, beside its name in the picture of the floors."""


def floors() -> list[list[str]]:
    """Read the rooms of each floor, the highest first, from the import contract in pyproject.toml."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "floors"]
    return [[room.strip(" ()") for room in floor.split("|")] for floor in contract["layers"]]


def architecture() -> str:
    """Draw the floors of the house as SVG: a room imports from the floors below it only."""
    width, height, gap, margin = 900, 44, 8, 10
    boxes = []
    for level, rooms in enumerate(floors()):
        room_width = (width - gap * (len(rooms) - 1)) / len(rooms)
        top = margin + level * (height + gap)
        for place, room in enumerate(rooms):
            left, middle = margin + place * (room_width + gap), margin + place * (room_width + gap) + room_width / 2
            boxes += [
                f'<rect x="{left:.1f}" y="{top}" width="{room_width:.1f}" height="{height}" rx="5" fill="{FILL}"'
                ' stroke="#777777"/>',
                f'<text x="{middle:.1f}" y="{top + 18}" font-weight="bold">{escape(room)}</text>',
                f'<text x="{middle:.1f}" y="{top + 35}" font-size="12">{escape(ROOMS[room])}</text>',
            ]
    across, down = width + 2 * margin, 2 * margin + len(floors()) * (height + gap) - gap
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" width="{across}" height="{down}"'
        ' font-family="sans-serif" font-size="14" text-anchor="middle">'
    )
    paper = f'<rect width="{across}" height="{down}" fill="#ffffff"/>'
    return "\n".join([head, "<title>The floors of cutepy</title>", paper, *boxes, "</svg>"])


def half_gemm() -> GemmConfig:
    """Return the configuration that the page on the GEMM follows."""
    half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    return GemmConfig(signature=half, tile_m=128, tile_n=256, warpgroups=2)


def ring() -> Grid:
    """Draw which K tile is in which stage, round by round."""
    stages = half_gemm().stages
    return one(picture_of(Layout((stages, 3))), "K tile by stage (down) and round (across)").but(caption=())


def descriptors() -> Grid:
    """Draw where the descriptors of a GEMM's operand A start."""
    layout = half_gemm().a_layout
    return one(picture_of(GmmaDescriptorIterator(layout, major="K", bits=16, mma_shape=(64, 16), base_address=0x400)))


def tiled_copy() -> Grid | Picture:
    """Draw how ldmatrix loads A of a warp's mma."""
    mma = TiledMMA(mma_traits("SM80_16x8x8_F32F16F16F32_TN"))
    drawn = picture_of(make_tiled_copy_A(make_copy_atom(ldmatrix_traits(2), 16), mma))
    return Picture(drawn.grids, "A of SM80_16x8x8_F32F16F16F32_TN, loaded by SM75_U32x2_LDSM_N")  # type: ignore[union-attr]


PICTURES: dict[str, Callable[[], Grid | Picture | str]] = {
    "architecture": architecture,
    "atoms": atoms,
    "bases": bases,
    "boxes": boxes,
    "comparison": comparison,
    "composition": lambda: steps(composition, Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))),
    "conflict": conflict,
    "accumulators": accumulators,
    "descriptor": descriptor,
    "descriptors": descriptors,
    "divide": divide,
    "fragment": fragment,
    "hierarchy": hierarchy,
    "ldmatrix": lambda: picture_of(ldmatrix_traits(1)),
    "nested": lambda: picture_of(parse("(2,(4,2)):(1,(2,8))")),
    "overview": overview,
    "products": products,
    "pycute": lambda: steps(logical_divide, Layout((4, 8), (8, 1)), (2, 4)),
    "ring": ring,
    "stmatrix": lambda: picture_of(stmatrix_traits(1)),
    "swizzle": swizzle,
    "tiled_copy": tiled_copy,
}
"""Name of a file -> what it shows."""


def draw(name: str) -> str:
    """Return a picture's SVG."""
    drawn = PICTURES[name]()
    return (drawn if isinstance(drawn, str) else render_svg(drawn)) + "\n"


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(draw(name), encoding="utf-8")


if __name__ == "__main__":
    main()
