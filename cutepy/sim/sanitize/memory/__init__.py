"""Shadow memory: the last accesses to each granule, checked against the next one."""
