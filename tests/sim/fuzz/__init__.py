"""Random PTX: changed texts of real kernels, and random programs with an interpreter of their own."""
