"""Builders of dataset formats that need a library, and findings of indexing a folder."""
