"""Whether a dataset is as its index says, and whether it can be decoded."""
