"""Tokenizers, alignment, truncation and sentence splitting, without torch."""
