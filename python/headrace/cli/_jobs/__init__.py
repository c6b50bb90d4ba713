"""Commands that look at all nodes of a job."""
