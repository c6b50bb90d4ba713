"""Indexing in parts: several files at a time, and going on after a stop."""
