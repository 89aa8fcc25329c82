"""Consistency of stages in shared memory with MMAs, tensors and registers: element types, majors, extents.

Element types go by the DSL's names. Those of shared memory do not distinguish signed from unsigned integers.
"""

from typing import Any

from cutepy.device.rules.launches import check_number

Extents = tuple[int, int]
_MAJORS = ("MN", "K")


def signless(element_type: str) -> str:
    """Return the signless name of an element type, as shared memory has it.

    Examples
    --------
    >>> signless("Uint8"), signless("Float16")
    ('Int8', 'Float16')
    """
    return element_type.removeprefix("U").capitalize() if element_type.startswith("Uint") else element_type


def check_multiplied(name: str, staged: str, multiplied: str) -> None:
    """Check that stages of A or B, `name`, have the element type of the MMAs.

    Raises
    ------
    TypeError
        If not: MMAs would read the bytes of shared memory as other types.

    Examples
    --------
    >>> check_multiplied("A", "Float16", "Float16")
    """
    if signless(staged) != signless(multiplied):
        raise TypeError(
            f"the stages of {name} must hold what the MMAs multiply, {multiplied}, got {staged}; make the MMAs for "
            f"{staged}, or stage {name} as {multiplied}"
        )


def check_operand_major(name: str, staged_mode: int | None, major: str) -> None:
    """Check that stages of A or B, `name`, have the MMA's major: mode 0 is "MN"-major, 1 is "K"-major.

    Raises
    ------
    ValueError
        If the other mode is contiguous. None, of stages that are contiguous in neither, passes.

    Examples
    --------
    >>> check_operand_major("A", 1, "K")
    """
    if staged_mode is not None and _MAJORS[staged_mode] != major:
        raise ValueError(
            f"the MMAs read {name} {major}-major, got stages whose contiguous mode is {staged_mode}, "
            f"{_MAJORS[staged_mode]}-major; make both with one contiguous mode"
        )


def check_contiguous_mode(staged_mode: int | None, mode: int | None) -> None:
    """Check that stages are contiguous in the mode of their copy's other side; None is unknown.

    Raises
    ------
    ValueError
        If they are contiguous in the other mode: rows would become columns.

    Examples
    --------
    >>> check_contiguous_mode(1, 1)
    """
    if None not in (staged_mode, mode) and staged_mode != mode:
        raise ValueError(
            f"stages and what they are copied to or from must have one contiguous mode, 1 for rows, got {staged_mode} "
            f"of the stages and {mode}; stage the tile with contiguous_mode={mode}"
        )


def check_copied_type(staged: str, copied: str) -> None:
    """Check that stages have the element type of a TMA copy, which is that of the tensor in global memory.

    TFloat32 stands for Float32 that a load has rounded.

    Raises
    ------
    TypeError
        If not: TMA converts nothing, and would move other bytes than the elements'.

    Examples
    --------
    >>> check_copied_type("Float16", "Float16")
    """
    if signless(staged) != signless(copied) and (staged, copied) != ("TFloat32", "Float32"):
        raise TypeError(
            f"TMA moves elements as they are, so stages must hold the tensor's element type, {copied}, got {staged}; "
            f"stage {copied}, and convert in registers"
        )


def check_copy_tile(tile: Extents, staged: Extents) -> None:
    """Check that a TMA copy of `tile` moves one stage.

    Raises
    ------
    ValueError
        If a stage has other extents.

    Examples
    --------
    >>> check_copy_tile((128, 64), (128, 64))
    """
    if tuple(tile) != tuple(staged):
        raise ValueError(
            f"a TMA copy moves one stage, of {staged[0]} x {staged[1]} elements, got a tile of {tile[0]} x {tile[1]}; "
            "use one for both"
        )


def check_tile_of_stages(tile: Extents, staged: Extents) -> None:
    """Check that tiles of a matrix are whole stages, one or several subtiles each.

    Raises
    ------
    ValueError
        If they are not.

    Examples
    --------
    >>> check_tile_of_stages((128, 128), (128, 32))
    """
    if any(extent % unit for extent, unit in zip(tile, staged, strict=True)):
        raise ValueError(
            f"a tile must be whole stages of {staged[0]} x {staged[1]} elements, got {tile[0]} x {tile[1]}; use a "
            "multiple of both extents, or smaller stages"
        )


def check_tile_or_part(tile: Extents, staged: Extents, contiguous: int | None) -> None:
    """Check that tiles of a matrix are whole stages, or parts of one, across its contiguous mode.

    Raises
    ------
    ValueError
        If they are neither.

    Examples
    --------
    >>> check_tile_or_part((16, 64), (128, 64), contiguous=1)
    """
    if contiguous is None or tile[contiguous] != staged[contiguous] or staged[1 - contiguous] % tile[1 - contiguous]:
        check_tile_of_stages(tile, staged)


SWIZZLED_LINES = 8
"""Lines of a stage, across its contiguous mode, after which a swizzle repeats."""


def parts_of_stage(tile: Extents, staged: Extents, contiguous: int | None) -> Extents:
    """Return how many tiles a stage has, along its rows and its columns: a TMA copy moves one of them.

    Tiles are whole lines of the stage, along its contiguous mode, in whole periods of its swizzle.

    Raises
    ------
    ValueError
        If the stage is not whole tiles.

    Examples
    --------
    >>> parts_of_stage((16, 64), (128, 64), contiguous=1), parts_of_stage((64, 16), (64, 128), contiguous=0)
    ((8, 1), (1, 8))
    >>> parts_of_stage((128, 64), (128, 64), contiguous=1)
    (1, 1)
    """
    if tuple(tile) == tuple(staged):
        return 1, 1
    across = 0 if contiguous is None else 1 - contiguous
    if contiguous is None or staged[across] % tile[across] or tile[contiguous] != staged[contiguous]:
        check_copy_tile(tile, staged)
    if tile[across] % SWIZZLED_LINES:
        raise ValueError(
            f"parts of a stage must have a multiple of {SWIZZLED_LINES} {('rows', 'columns')[across]}, after which its "
            f"swizzle repeats, got {tile[across]}; copy fewer by threads"
        )
    count = staged[across] // tile[across]
    return (count, 1) if across == 0 else (1, count)


def place_of_part(part: Any, parts: Extents) -> tuple[Any, Any]:
    """Return the row and the column of a part among those of a stage.

    Raises
    ------
    IndexError
        If there is no such part.
    TypeError
        If none is named, of several.

    Examples
    --------
    >>> place_of_part(3, (8, 1)), place_of_part(3, (1, 8)), place_of_part(None, (1, 1))
    ((3, 0), (0, 3), (0, 0))
    """
    count = parts[0] * parts[1]
    if part is None:
        if count > 1:
            raise TypeError(f"a stage of {count} parts must be loaded by their numbers, got none; pass part=")
        return 0, 0
    check_number("part", part, count)
    return (part, 0) if parts[1] == 1 else (0, part)


def check_covering(tile: Extents, stored: Extents) -> None:
    """Check that the tiles of a store have the extents of the accumulators.

    Raises
    ------
    ValueError
        If not: sums would be stored nowhere, or in another tile.

    Examples
    --------
    >>> check_covering((128, 256), (128, 256))
    """
    if tuple(tile) != tuple(stored):
        raise ValueError(
            f"the tiles of the output must have the extents of the accumulators, {tile[0]} x {tile[1]}, got "
            f"{stored[0]} x {stored[1]}; make them with ({tile[0]}, {tile[1]})"
        )


def check_registers(held: int, expected: int) -> None:
    """Check the number of a thread's registers of a subtile against that of the block they are passed to.

    Raises
    ------
    ValueError
        If the two subtiles differ: values would meet those of other columns.

    Examples
    --------
    >>> check_registers(16, 16)
    """
    if held != expected:
        raise ValueError(
            f"the block was made for subtiles of {expected} registers a thread, got {held}; make the AccumulatorTile "
            "and the TileStore for one subtile"
        )


def check_sums(element_type: str) -> None:
    """Check that values to be scaled, added or reduced are fp32; sums of integer products are not.

    Raises
    ------
    TypeError
        If they are not.

    Examples
    --------
    >>> check_sums("Float32")
    """
    if element_type != "Float32":
        raise TypeError(
            f"the registers of a subtile must be Float32, got {element_type}; convert them first: make a register "
            "tensor of Float32 and store rC.load().to(Float32) in it"
        )
