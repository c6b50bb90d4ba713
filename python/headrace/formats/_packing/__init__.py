"""Parts of `headrace.formats.pack`."""
