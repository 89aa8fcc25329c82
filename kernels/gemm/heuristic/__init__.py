"""Choose a configuration without timing: an analytical model, refined by decision trees fitted to measurements.

`choice` gives it; `tiles` lists what there is, `candidates` orders it by what `estimates` computes by the `model`, and
`refinement` corrects the first of these.
"""
