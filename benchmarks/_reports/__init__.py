"""Tables and charts of what benchmarks found."""
