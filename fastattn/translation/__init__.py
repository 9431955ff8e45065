"""Translator: from texts to texts."""
