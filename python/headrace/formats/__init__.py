"""Builders for dataset formats that need a library."""
