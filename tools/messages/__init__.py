"""Where the package and the core make an error, and what the tests have seen of each message."""
