"""Translator, and translators that use another translator."""
