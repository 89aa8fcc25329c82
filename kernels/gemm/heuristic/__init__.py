"""Which configuration a problem gets without timing: a model of the kernel, refined by trees that were fitted to times.

`choice` gives it; `tiles` lists what there is, `candidates` orders it by what `estimates` computes by the `model`, and
`refinement` corrects the first of these.
"""
