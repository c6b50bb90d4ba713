"""Processes that read samples, and messages to them."""
