"""Kernels of the CuTe DSL: its compiled functions run their own host code, and their launches are simulated."""
