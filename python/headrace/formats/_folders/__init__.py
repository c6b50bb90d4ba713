"""What folders hold: splits of a dataset, and data that lies in another way than it seems."""
