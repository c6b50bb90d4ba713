"""An object server for tests, with faults."""
