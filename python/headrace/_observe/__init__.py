"""What a loader tells of itself: the verdict, traces, metrics, and who asks from outside."""
