"""What the fields of a sample are to a training loop, as far as names and types tell."""
