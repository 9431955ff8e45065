"""Encoder and its siblings: from texts to vectors, scores, labels and tokens."""
