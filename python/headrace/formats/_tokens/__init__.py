"""Files of tokens, for the format `tokens`."""
