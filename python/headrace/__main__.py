"""`python -m headrace`: the `headrace` command."""

from headrace.cli import main

main()
