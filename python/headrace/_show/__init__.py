"""What people see of datasets, loaders, statistics and batches: in notebooks, and in sentences."""
