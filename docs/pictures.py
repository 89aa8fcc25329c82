"""The documentation's pictures, drawn by the library: `python docs/pictures.py` writes them to docs/pictures.

A test draws them again and compares, so that they are what the library draws today.
"""

from collections.abc import Callable
from pathlib import Path

from cutepy.layouts import Layout, bank_conflicts, compare, steps, tile_to_shape, warp_access, zipped_divide
from cutepy.layouts.render import Grid, Picture, picture_of, render_svg
from cutepy.layouts.sm80 import mma_traits
from cutepy.layouts.sm90 import (
    GmmaDescriptorIterator,
    TiledMMA,
    gmma_layout_atom,
    ldmatrix_traits,
    make_copy_atom,
    make_tiled_copy_A,
)

FOLDER = Path(__file__).with_name("pictures")


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


def tiled_copy() -> Grid | Picture:
    """Draw how ldmatrix loads A of a warp's mma."""
    mma = TiledMMA(mma_traits("SM80_16x8x8_F32F16F16F32_TN"))
    drawn = picture_of(make_tiled_copy_A(make_copy_atom(ldmatrix_traits(2), 16), mma))
    return Picture(drawn.grids, "A of SM80_16x8x8_F32F16F16F32_TN, loaded by SM75_U32x2_LDSM_N")  # type: ignore[union-attr]


PICTURES: dict[str, Callable[[], Grid | Picture]] = {
    "comparison": comparison,
    "conflict": conflict,
    "descriptor": descriptor,
    "divide": divide,
    "fragment": fragment,
    "hierarchy": hierarchy,
    "ldmatrix": lambda: picture_of(ldmatrix_traits(1)),
    "swizzle": swizzle,
    "tiled_copy": tiled_copy,
}
"""Name of a file -> what it shows."""


def draw(name: str) -> str:
    """Return a picture's SVG."""
    return render_svg(PICTURES[name]()) + "\n"


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(draw(name), encoding="utf-8")


if __name__ == "__main__":
    main()
