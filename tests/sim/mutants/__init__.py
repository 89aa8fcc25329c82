"""Mutants of kernels: one synchronisation operation of the PTX is changed at a time, and the sanitizer must say so."""
