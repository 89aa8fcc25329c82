"""Building blocks of Blackwell kernels: tensor memory, tcgen05 products and their pipelines, TMA of pairs (traced)."""
