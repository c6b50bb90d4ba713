"""Loaders for Accelerate, Hugging Face's Trainer and Lightning. `headrace docs design/trainers`."""
