"""Parts of tools/tidy.py: each has rules of one subject."""
