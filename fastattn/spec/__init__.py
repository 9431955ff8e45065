"""What a model is, as plain data: its architecture, its tensors, its text, how its numbers are kept."""
