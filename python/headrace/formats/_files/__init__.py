"""Parsers of files, and lists of them, for the formats."""
