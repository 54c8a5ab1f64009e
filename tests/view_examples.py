"""An example of every view, with the built-in model or a small one, for browser tests and bench."""

from collections.abc import Callable

import cloze
from cloze.checkpoint.model import Model
from cloze.plot.view import View
from helpers import PIECES, tiny_model, tiny_tokenizer

TEXT = "The animal didn't cross the street because it was too tired."
MASKED = "Paris is the capital of [MASK]."
TAGGED = [
    {"words": ["The", "cat", "sat"], "tags": ["DET", "NOUN", "VERB"]},
    {"words": ["A", "dog", "ran"], "tags": ["DET", "NOUN", "VERB"]},
] * 4
LONG = " ".join(f"w{n % 300}" for n in range(510))  # with [CLS] and [SEP] 512 tokens

EXAMPLES: dict[str, Callable[..., View]] = {
    "attention": lambda: cloze.explain.attention("cloze-en", TEXT),
    "heads": lambda: cloze.explain.heads("cloze-en", [TEXT, MASKED]),
    "attention: a pair": lambda: cloze.explain.attention(
        tiny_model("nsp"), "the cat sat", "a cat sats ."
    ),
    "saliency": lambda: cloze.explain.saliency("cloze-en", MASKED),
    "saliency: signed, with faithfulness": lambda: cloze.explain.saliency(
        tiny_model("sequence"),
        "the cat sat .",
        method="integrated",
        signed=True,
        faithfulness=True,
    ),
    "saliency: generated tokens": lambda: cloze.explain.saliency(
        tiny_model("lm", family="gpt2"), "the cat sat", new_tokens=4
    ),
    "neurons": lambda: cloze.explain.neurons("cloze-en", TEXT),
    "neurons: of a corpus": lambda: cloze.explain.neurons(
        "cloze-en", neuron="8:347", corpus=[{"text": TEXT}, {"text": MASKED}]
    ),
    "ablation": lambda: cloze.explain.ablation("cloze-en", MASKED),
    "patching": lambda: cloze.explain.patching(
        "cloze-en", MASKED, from_text="Berlin is the capital of [MASK]."
    ),
    "layers": lambda: cloze.explain.layers("cloze-en", MASKED),
    "layers: every position": lambda: cloze.explain.layers("cloze-en", TEXT),
    "cka": lambda: cloze.explain.cka("cloze-en", [TEXT, MASKED], batch_size=8),
    "probe": lambda: cloze.explain.probe("cloze-en", TAGGED, test=TAGGED),
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
