"""What `make test` and `make check` run, stage by stage: see __main__.py."""
