"""What concerns this process as a whole."""
