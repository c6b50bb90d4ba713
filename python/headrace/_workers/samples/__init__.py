"""What a transform gets."""
