"""Models, one file a kind, found by name in ``kinds``: layers built from a checkpoint's spec."""
