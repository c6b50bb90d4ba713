"""Objects of JSON."""
