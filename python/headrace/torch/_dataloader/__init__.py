"""What `headrace.torch.DataLoader` is made of: docs/design/torch-dataloader.md. Not for users."""
