"""Choose a configuration without timing: an analytical model, refined by decision trees fitted to measurements.

`choice` returns the configuration. `tiles` lists the output tiles, `candidates` ranks them by the times that
`estimates` computes with the `model`, and `refinement` corrects the times of the best candidates.
"""
