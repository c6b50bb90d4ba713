"""The parts of the format Parquet: schemas, values."""
