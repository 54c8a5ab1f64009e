"""An example of every view, with the built-in model or a small one, for browser tests and bench."""

from collections.abc import Callable

import cloze
from cloze.checkpoint.model import Model
from cloze.plot.view import View
from helpers import PIECES, tiny_model, tiny_tokenizer

TEXT = "The animal didn't cross the street because it was too tired."
MASKED = "Paris is the capital of [MASK]."
LONG = " ".join(f"w{n % 300}" for n in range(510))  # with [CLS] and [SEP] 512 tokens

EXAMPLES: dict[str, Callable[..., View]] = {
    "attention": lambda: cloze.explain.attention("cloze-en", TEXT),
    "heads": lambda: cloze.explain.heads("cloze-en", [TEXT, MASKED]),
    "ablation": lambda: cloze.explain.ablation("cloze-en", MASKED),
    "patching": lambda: cloze.explain.patching(
        "cloze-en", MASKED, from_text="Berlin is the capital of [MASK].", parts="blocks"
    ),
    "layers": lambda: cloze.explain.layers("cloze-en", MASKED),
    "layers: a text without a mask": lambda: cloze.explain.layers("cloze-en", TEXT),
    "cka": lambda: cloze.explain.cka("cloze-en", [TEXT, MASKED], batch_size=8),
}
"""By name: that of the view, or the view, a colon and what is special about it."""


def make_encoder(layers: int, heads: int) -> Model:
    """A BERT with random weights that reads 512 tokens."""
    pieces = [*PIECES, *(f"w{n}" for n in range(300))]
    return tiny_model(
        tokenizer=tiny_tokenizer(pieces),
        positions=512,
        vocab_size=len(pieces),
        num_layers=layers,
        num_heads=heads,
        hidden_size=8 * heads,
    )


LARGE: dict[str, Callable[[], View]] = {
    "attention: 512 tokens × 12 layers × 12 heads": lambda: cloze.explain.attention(
        make_encoder(12, 12), LONG
    ),
    "attention: 512 tokens × 24 layers × 16 heads": lambda: cloze.explain.attention(
        make_encoder(24, 16), LONG
    ),
}
"""The sizes that a page must still hold."""
