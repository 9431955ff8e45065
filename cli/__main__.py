"""``python -m fastattn.cli``, where the ``fastattn`` script is not on the path."""

from fastattn.cli import main

main()
