"""Layouts of bytes: a reader must take them through the layout that the writer used."""
