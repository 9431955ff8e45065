"""Models that train in minutes, with which fastattn is compared and timed.

    python -m bench.train NAME --into DIR

It needs PyTorch alone, for digits scikit-learn too. Weights are never committed.
"""
