"""Documents: their texts are translated, and everything else stays as it was."""
