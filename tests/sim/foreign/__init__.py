"""Runs other people's kernels in the simulator, and writes the table of what passes: see `__main__`."""
