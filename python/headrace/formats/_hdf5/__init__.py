"""HDF5 files: where the rows of their datasets lie."""
