"""Hot code as machine code: runs of instructions over warps of 32 lanes, with the results of numpy's, bit for bit."""
