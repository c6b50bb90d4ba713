"""Dataset formats: builders of those that need a library, and what indexing a folder found."""
