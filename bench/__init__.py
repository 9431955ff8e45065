"""``python -m bench`` in the clone's root. A package, so that an installed one of that name is not found first."""
