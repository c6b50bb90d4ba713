"""Groups of the loader's options, and the earlier names of what they hold."""
