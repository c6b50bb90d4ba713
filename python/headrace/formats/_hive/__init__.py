"""Folders whose names are values of columns: `year=2024/month=1/x.parquet`."""
