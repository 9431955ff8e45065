"""Whole models, one short file an architecture: layers put together as a checkpoint's spec says."""
