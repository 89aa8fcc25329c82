"""Inspection of runs: shared memory, timelines, bank conflicts, saved runs."""
