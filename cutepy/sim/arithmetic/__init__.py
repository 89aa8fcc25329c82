"""Numbers as PTX has them: integer and floating point operations that numpy lacks or does differently."""
