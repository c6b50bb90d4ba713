"""Tars of samples, for the format `webdataset`."""
