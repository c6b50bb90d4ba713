"""Arrow IPC files as they lie on storage: where the bytes of each row are."""
