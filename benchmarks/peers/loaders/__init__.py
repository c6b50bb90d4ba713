"""One module for each loader. In a peer's environment: imports neither headrace nor the harness."""
