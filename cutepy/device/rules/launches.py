"""Launch requirements of blocks, and checks of numbers that are known while a kernel is traced.

A check passes if the number is None, or is known only on the device.
"""

from cutepy.layouts.sm90 import arch


def check_number(what: str, number: object, count: object) -> None:
    """Check an index below `count`, such as a stage's.

    Raises
    ------
    IndexError
        If the number is negative, or not below `count`.

    Examples
    --------
    >>> check_number("stage", 3, 4)
    >>> check_number("stage", 4, 4)
    Traceback (most recent call last):
    ...
    IndexError: stage must be 0 to 3, got 4
    """
    if isinstance(number, int) and isinstance(count, int) and not 0 <= number < count:
        raise IndexError(f"{what} must be 0{f' to {count - 1}' * (count > 1)}, got {number}")


def check_buffer(buffer: object, index: object, subtiles: object, stages: int) -> None:
    """Check the stage of `stages` that stores a subtile, where a tile has so many subtiles.

    Raises
    ------
    IndexError
        If there is no such stage.
    ValueError
        If every tile begins with one stage, and the tile before may have ended with it: TMA may still read it.

    Examples
    --------
    >>> check_buffer(1, 3, 4, 2)
    >>> check_buffer(0, 0, 4, 3)
    Traceback (most recent call last):
    ...
    ValueError: a tile of 4 subtiles can't begin with stage 0 of 3 whatever the last one ended with, since TMA may still read it; use a number of stages that divides 4, or count the subtiles of all tiles: (4 * tiles before + index) % 3
    """  # noqa: E501
    check_number("stage", buffer, stages)
    if not isinstance(buffer, int):
        return
    if isinstance(subtiles, int) and subtiles % stages:
        raise ValueError(
            f"a tile of {subtiles} subtiles can't begin with stage {buffer} of {stages} whatever the last one ended "
            f"with, since TMA may still read it; use a number of stages that divides {subtiles}, or count the subtiles "
            f"of all tiles: ({subtiles} * tiles before + index) % {stages}"
        )
    if isinstance(index, int) and buffer != index % stages:
        raise ValueError(
            f"subtile {index} must go through stage {index % stages} of {stages}, in turn, got stage {buffer}, which "
            f"TMA may still read; use index % {stages}"
        )


def check_coordinate(modes: int, expected: int, names: str) -> None:
    """Check that a coordinate of a tile has a number for each mode.

    Raises
    ------
    ValueError
        If it has more or fewer.

    Examples
    --------
    >>> check_coordinate(2, 2, "(row, column)")
    """
    if modes != expected:
        raise ValueError(f"a tile is at {names}, {expected} numbers, got {modes}")


def check_threads(needed: int, threads: int | None) -> None:
    """Check that a CTA has the threads that MMAs run on.

    Raises
    ------
    ValueError
        If it is launched with fewer.

    Examples
    --------
    >>> check_threads(256, 384), check_threads(256, None)
    (None, None)
    """
    if threads is not None and needed > threads:
        raise ValueError(
            f"the MMAs run on {needed} threads, got a CTA of {threads}; launch it with {needed}, and those that load"
        )


def check_readers(consumer_warps: int, readers: int, threads: int | None) -> None:
    """Check the number of consumer warps of a ring whose stages are read by an MMA of `readers` threads.

    Other warps may read the stages too, such as a second warpgroup with an MMA of its own.

    Raises
    ------
    ValueError
        If `consumer_warps` is below the warps of the MMA, so that TMA overwrites a stage that is still read; or above
        the warps of the CTA, so that the producer waits for ever.

    Examples
    --------
    >>> check_readers(8, 256, 384)
    >>> check_readers(4, 256, 384)
    Traceback (most recent call last):
    ...
    ValueError: a ring must wait for all warps that read its stages, 8 of the MMAs at least, got consumer_warps=4
    """
    warps = readers // arch.WARP_THREADS
    if consumer_warps < warps:
        raise ValueError(
            f"a ring must wait for all warps that read its stages, {warps} of the MMAs at least, got "
            f"consumer_warps={consumer_warps}"
        )
    if threads is not None and consumer_warps * arch.WARP_THREADS > threads:
        raise ValueError(
            f"consumer_warps must be at most {threads // arch.WARP_THREADS}, the warps of a CTA of {threads} threads, "
            f"got {consumer_warps}"
        )


def check_warpgroups(first: int, count: int, threads: int | None) -> None:
    """Check that `count` threads of a CTA, from `first` on, are warpgroups, and that it is launched with them.

    Raises
    ------
    ValueError
        If not: an instruction of a warpgroup would wait for threads that never come, or take threads of two
        warpgroups.

    Examples
    --------
    >>> check_warpgroups(128, 256, 384)
    >>> check_warpgroups(128, 256, 256)
    Traceback (most recent call last):
    ...
    ValueError: threads 128 to 383 need a CTA of 384, got one of 256; launch it with block=(384, 1, 1)
    """
    if first < 0 or count < 1 or first % arch.WARPGROUP_THREADS or count % arch.WARPGROUP_THREADS:
        raise ValueError(
            f"a warpgroup has {arch.WARPGROUP_THREADS} threads, the first a multiple of so many, got {count} from "
            f"{first} on; use multiples of {arch.WARPGROUP_THREADS} for both"
        )
    if threads is not None and first + count > threads:
        raise ValueError(
            f"threads {first} to {first + count - 1} need a CTA of {first + count}, got one of {threads}; launch it "
            f"with block=({first + count}, 1, 1)"
        )


def check_cluster(what: str, cluster: tuple[int, ...], launched: tuple[int, ...] | None) -> None:
    """Check that a kernel is launched with the cluster that a block was made for.

    Raises
    ------
    ValueError
        If it was made for another: CTAs would take others' work, or not wait for one another.

    Examples
    --------
    >>> check_cluster("a ring", (2, 1), (2, 1, 1))
    """
    if launched is not None and tuple(cluster) != launched[: len(cluster)]:
        raise ValueError(
            f"{what} was made for clusters of {' x '.join(map(str, cluster))} CTAs, got a launch with "
            f"cluster={launched}; use one for both"
        )
