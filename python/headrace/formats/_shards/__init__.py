"""What MDS and LitData share: the bytes of shards, and the columns of samples in them."""
