"""Benchmark suites of `cutepy bench`, one module a suite; the protocol is `cutepy.benchmark`."""
