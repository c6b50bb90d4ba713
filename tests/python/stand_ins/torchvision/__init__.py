"""What tests use of torchvision, by its calling convention, where it cannot be imported."""
