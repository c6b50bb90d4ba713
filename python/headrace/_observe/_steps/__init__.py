"""What loaders recorded of their newest steps: a trace, traces merged, a chart."""
