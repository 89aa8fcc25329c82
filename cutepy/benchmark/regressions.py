"""Regressions of a report against a saved one."""

from cutepy.benchmark.report import Report

LEAST = 0.02
"""Smallest difference that counts, however steady the rows are."""


def regressions(now: Report, then: Report) -> list[str]:
    """List the problems of both reports in which cutepy is slower than before, beyond the noise of either.

    The speed is that against the best peer where both reports have the same peers, since clocks differ from run to run
    and from GPU to GPU; device time otherwise.

    Examples
    --------
    >>> from cutepy.benchmark import Row
    >>> def report(ours):
    ...     rows = [("cutepy", ours, 0.01), ("cuBLAS", 10.0, None)]
    ...     return Report([Row("4x4x4", who, us, us, 1, 1, 0.0, noise) for who, us, noise in rows])
    >>> regressions(report(11.0), report(10.0))
    ['4x4x4: 0.909 of the best peer, 1.000 before (0.909 times as fast)']
    >>> regressions(report(10.1), report(10.0))
    []
    """
    found = []
    for problem in dict.fromkeys(row.problem for row in now.rows):
        mine, before = now.of(problem), then.of(problem)
        if now.ours not in mine or now.ours not in before:
            continue
        ratio, earlier = now.ratio(problem), then.ratio(problem)
        if ratio is not None and earlier is not None and mine.keys() == before.keys():
            told = f"{ratio:.3f} of the best peer, {earlier:.3f} before"
        else:
            ratio, earlier = 1 / mine[now.ours].device_us, 1 / before[now.ours].device_us
            told = f"{1 / ratio:.1f} us, {1 / earlier:.1f} before"
        noise = max(LEAST, mine[now.ours].noise or 0.0, before[now.ours].noise or 0.0)
        if ratio / earlier < 1 - noise:
            found.append(f"{problem}: {told} ({ratio / earlier:.3f} times as fast)")
    return found
