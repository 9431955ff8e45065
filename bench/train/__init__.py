"""Recurrent models that are small enough to train in minutes: what the product reads, equals and is timed on.

    python -m bench.train NAME --into DIR

It needs PyTorch alone. Weights are never committed.
"""
