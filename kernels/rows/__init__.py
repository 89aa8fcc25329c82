"""Kernels that compute rows: normalisations, softmax, losses; bound by the bandwidth of memory."""
