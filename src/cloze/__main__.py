"""`python -m cloze`: the same as the command."""

from cloze.cli import main

main()
