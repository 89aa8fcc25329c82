"""These tests need nvcc: they run by `make nvcc`, which says so."""

import os

collect_ignore_glob = [] if os.environ.get("CUTEPY_TEST_NVCC") else ["test_*.py"]
