"""What the engine reads for `headrace.torch.DataLoader`: arrays and texts, or bytes of files."""
