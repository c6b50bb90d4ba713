"""Which field a column of Arrow or Parquet becomes, by its type."""
