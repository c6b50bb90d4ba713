"""Worker processes that read a DataLoader's samples."""
