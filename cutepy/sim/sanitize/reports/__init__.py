"""Reports of hazards: both accesses, the missing step, each defect once."""
