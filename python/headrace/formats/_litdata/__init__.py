"""LitData: chunks of samples, of tokens, of rows of an Arrow table."""
