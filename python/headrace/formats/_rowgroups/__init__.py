"""Row groups: parts of files that a reader process decodes for a store of the core."""
