"""What a model is, as plain data: its architecture, its tensors, its input, how its numbers are stored."""
