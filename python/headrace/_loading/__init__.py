"""What the Loader is made of, file by subject. Not for users."""
