"""Images with captions: reading, decoding, and drawings made here."""
