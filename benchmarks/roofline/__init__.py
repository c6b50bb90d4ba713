"""The roofline program, and its use by other benchmarks."""
