"""Batches on a device."""
