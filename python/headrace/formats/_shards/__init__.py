"""Shards of samples behind a table of offsets, as MDS and LitData write them."""
