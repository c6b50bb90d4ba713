"""Several nodes: whether they ask each other for samples, and how they find each other."""
