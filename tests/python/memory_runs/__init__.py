"""Loops whose memory the kernel counts."""
