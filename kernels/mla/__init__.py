"""Multi-head latent attention: queries of all heads with one latent row a token, whose first columns are its values."""
