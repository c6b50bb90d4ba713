"""What `convergence.py` trains."""
