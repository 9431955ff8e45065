"""Translator: translates texts; and translators that work by others."""
