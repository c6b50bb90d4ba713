"""What `headrace profile` measures: this machine, its storage, and the links to other nodes."""
