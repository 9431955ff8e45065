"""Architectures in Hugging Face directories, a file for each family; encoders, decoders and translators name them."""
