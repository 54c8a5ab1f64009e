"""Which characters are words of their own wherever they stand: those that BERT's cleaning parts.

The blocks are those of the tokenizers library's `BertNormalizer`, so that words found here are
never cut differently by a tokenizer later.
"""

# For the inside of a character class: re.compile(f"[{IDEOGRAPHS}]").
IDEOGRAPHS = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
