"""How samples are read: by a dataset, with what was read ahead, and how many at a time."""
