"""Operand A in registers: limits on its way from shared memory to the MMAs."""

_COPIED_BITS = (8, 16, 32, 64, 128)
"""Widths of a thread's load."""


def step_halves(steps: int) -> tuple[range, range]:
    """Split the MMAs along K of a stage into two groups, each with a register fragment of its own.

    Raises
    ------
    ValueError
        If there is only one: its registers would be filled again while the MMA before still reads them.

    Examples
    --------
    >>> step_halves(4), step_halves(3)
    ((range(0, 2), range(2, 4)), (range(0, 2), range(2, 3)))
    """
    if steps < 2:
        raise ValueError(
            "a stage whose A passes through registers must have at least 2 MMAs along K, one to load while one is "
            f"multiplied, got {steps}; use a larger K"
        )
    middle = -(-steps // 2)
    return range(middle), range(middle, steps)


def check_operand_source(source: str, wanted: str) -> None:
    """Check the source of an MMA's A: "smem", shared memory, or "rmem", registers.

    Raises
    ------
    ValueError
        If it is another place than the main loop has A in.

    Examples
    --------
    >>> check_operand_source("rmem", "rmem")
    """
    if source != wanted:
        places = {"smem": "shared memory (SS)", "rmem": "registers (RS)"}
        raise ValueError(
            f"the MMAs must take A from {places[wanted]}, got MMAs that take it from {places[source]}; make "
            f"them with a_in_registers={wanted == 'rmem'}"
        )


def check_accumulated(tile: tuple[int, int], held: tuple[int, int]) -> None:
    """Check that the tile of `operand.from_accumulators` has the extents of the accumulators that it takes.

    Raises
    ------
    ValueError
        If not: registers of A would get sums of other places, or none.

    Examples
    --------
    >>> check_accumulated((128, 64), (128, 64))
    """
    if tuple(tile) != tuple(held):
        raise ValueError(
            f"the tile of operand.from_accumulators must have the extents of the accumulators, {held}, got "
            f"{tuple(tile)}; pass {held}"
        )


def check_fragments(columns: int, step: int, fragments: int) -> None:
    """Check the number of fragments of an A in registers, one for each MMA along K.

    Raises
    ------
    ValueError
        If there are others than `columns` along K need, of `step` for each MMA: a part of A would be left out.

    Examples
    --------
    >>> check_fragments(64, 16, 4)
    """
    if columns != step * fragments:
        raise ValueError(
            f"an A of K = {columns} in registers must be whole MMAs of K = {step}, a fragment for each, got "
            f"{fragments}; use a multiple of {step}, and the fragments that make_fragments gives for that"
        )


def check_staged_operand(k_is_contiguous: bool, bits: int, run: int) -> None:
    """Check a staged A of which each thread loads `run` neighbours along K, of `bits` each, at once.

    Raises
    ------
    ValueError
        If neighbours along K are apart, or no load is so wide.

    Examples
    --------
    >>> check_staged_operand(True, 8, 2)
    """
    if not k_is_contiguous:
        raise ValueError(
            "an A that passes through registers must be staged K-major, got MN-major; copy it, or swap A and B"
        )
    if bits * run not in _COPIED_BITS:
        raise ValueError(f"a thread loads {', '.join(map(str, _COPIED_BITS))} bits, got {run} elements of {bits}")
