"""Drawings of layouts: one model, `Grid`, and renderers of it."""

from .grid import Grid as Grid, layout_grid as layout_grid
from .text import render_text as render_text

__all__ = ["Grid", "layout_grid", "render_text"]
