"""Grids: the model of every picture. Layouts, thread-value maps and tensors become grids of cells with axes.

`render` draws grids as SVG, HTML and LaTeX; `text` here draws them in a terminal.
"""
