"""``python -m fastattn``: the ``fastattn`` command, where its script is not on the path."""

from fastattn.cli import main

main()
