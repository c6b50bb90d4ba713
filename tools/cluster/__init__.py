"""Runs a command on several nodes that are made of one machine: CONTRIBUTING.md (11)."""
