"""Models that are small enough to train in minutes: what the product reads, equals and is timed on.

    python -m bench.train NAME --into DIR

It needs PyTorch alone, for digits scikit-learn too. Weights are never committed.
"""
