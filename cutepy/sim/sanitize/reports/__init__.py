"""What is told of a hazard: both sides, what is missing, each defect once."""
