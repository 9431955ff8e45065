"""Whole models, one short file a kind, found by name in ``kinds``: layers put together as a checkpoint's spec says."""
