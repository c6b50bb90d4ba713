"""What every format is made of: fields, the builder of indexes, findings, the cache folder."""
