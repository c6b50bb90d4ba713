"""Clients of stores: by URL, with their credentials, and what their errors mean."""
