"""Text to ids and back: vocabularies, tokenizers, alignment, length. Nothing here needs torch."""
