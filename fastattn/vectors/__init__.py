"""What is done with vectors: similarity, search, quantized and sparse ones."""
