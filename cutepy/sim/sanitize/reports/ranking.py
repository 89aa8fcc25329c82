"""Which hazards are told first.

Reports print what was found first before what follows from it, but for some kinds that are causes wherever they show:
a barrier that nobody knows of makes all that it should order unordered, and uneven bytes are seen last. A
deadlock follows from whatever else there is.
"""

from __future__ import annotations

_CAUSES = (
    "repeated-init",
    "overwritten-mbarrier",
    "missing-init-fence",
    "unpublished-mbarrier",
    "partial-warp",
    "partial-warpgroup",
    "uneven-bytes",
)


def rank(name: str) -> int:
    """Return whether reports print a kind before others that were found earlier: the smaller, the nearer to the cause.

    Examples
    --------
    >>> rank("repeated-init") < rank("uneven-bytes") < rank("unordered-read") == rank("missing-proxy-fence")
    True
    >>> rank("deadlock") > rank("unordered-read")
    True
    """
    if name == "deadlock":
        return len(_CAUSES) + 1
    return _CAUSES.index(name) if name in _CAUSES else len(_CAUSES)
