"""Measure kernels by one protocol: interleaved peers, fresh random inputs, buffers beyond L2, two times for each.

`compare` measures, `Report` prints and saves. See `docs/benchmarks.md` for the protocol and figures.
"""

from cutepy.benchmark.protocol import (
    Protocol as Protocol,
    Timing as Timing,
    buffer_sets as buffer_sets,
    compare as compare,
)
from cutepy.benchmark.regressions import regressions as regressions
from cutepy.benchmark.report import Report as Report, Row as Row, environment as environment

__all__ = ["Protocol", "Report", "Row", "Timing", "buffer_sets", "compare", "environment", "regressions"]
