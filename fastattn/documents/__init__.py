"""Documents: their texts out, translations in, everything else as it was."""
