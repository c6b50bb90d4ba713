"""Manifests: tables with a row a sample, which names its files."""
