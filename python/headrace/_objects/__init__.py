"""Object stores, by obstore: what the processes run that read objects and list them.

These processes load neither the core nor numpy, and the user's process never loads obstore: one
that has and forks has a child in which it hangs. `docs/design/objects.md` is the design.
"""
