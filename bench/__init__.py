"""``python -m bench`` in the clone's root. A package, so that no installed one of that name comes first."""
