"""Epochs of samplers: how they are drawn, drawn again, and saved."""
