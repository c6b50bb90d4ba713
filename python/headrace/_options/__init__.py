"""Groups of the loader's options."""
