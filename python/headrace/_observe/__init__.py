"""Reports of a loader: the verdict, traces, metrics, and the monitor for other processes."""
