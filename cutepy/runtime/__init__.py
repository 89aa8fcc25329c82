"""Runtime of compiled programs: the loader, CUDA under the names of host code, and its stand-in."""
