"""`cutepy.compile`: compiled functions, kept on disk, launched in microseconds."""
