"""Objects that are written: the process that sends them, and its end in the user's process."""
