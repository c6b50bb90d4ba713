"""TFRecord: records, and the features of their examples."""
