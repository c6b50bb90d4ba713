"""What a transform returned, as rows of a batch."""
