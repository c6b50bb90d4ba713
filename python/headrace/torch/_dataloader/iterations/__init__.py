"""Batches on their way through an iteration, and what fills them."""
