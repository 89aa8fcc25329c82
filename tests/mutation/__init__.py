"""Mutation testing of `cutepy.layouts`: change one operator, constant or statement; some test must notice."""
