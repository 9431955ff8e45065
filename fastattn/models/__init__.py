"""Models, a file for each kind: layers built from a checkpoint's spec. ``kinds`` has them by name."""
