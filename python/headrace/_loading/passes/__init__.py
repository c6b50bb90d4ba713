"""Passes of samplers: what they draw from, and how one is repeated."""
