"""Generator: from prompts to what a language model says next."""
