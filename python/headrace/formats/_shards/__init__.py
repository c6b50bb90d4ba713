"""Formats of shards, MDS, LitData and TFRecord, and the layouts that they are made of."""
