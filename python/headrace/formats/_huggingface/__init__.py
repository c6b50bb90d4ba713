"""Datasets of Hugging Face `datasets`: saved folders, caches, open datasets."""
