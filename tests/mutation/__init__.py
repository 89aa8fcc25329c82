"""Mutation testing: change one operator, constant or statement; some test must notice."""
