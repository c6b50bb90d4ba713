"""The process that reads ranges for a store of the core."""
