"""What is done ahead of a job: its bill, and filling its tiers."""
