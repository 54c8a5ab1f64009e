"""An example of every view, with the built-in model or a small one, for browser tests and bench."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

import cloze
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import FeatureSettings, Task
from cloze.models.word2vec import Snapshots
from cloze.nn.feature_heads import FeatureInputs, LinearFeatureHead
from cloze.plot.view import View
from grams import text_model
from helpers import PIECES, tiny_model, tiny_tokenizer, word_model
from languages import elmo_model, neural_model

TEXT = "The animal didn't cross the street because it was too tired."
MASKED = "Paris is the capital of [MASK]."
TAGGED = [
    {"words": ["The", "cat", "sat"], "tags": ["DET", "NOUN", "VERB"]},
    {"words": ["A", "dog", "ran"], "tags": ["DET", "NOUN", "VERB"]},
] * 4
LONG = " ".join(f"w{n % 300}" for n in range(510))  # with [CLS] and [SEP] 512 tokens
PYTHONS = [
    ("The python swallowed a small deer.", "snake"),
    ("A python has no venom and kills by constriction.", "snake"),
    ("He wrote the program in Python.", "language"),
    ("Python has lists and dictionaries.", "language"),
]


def make_word_vectors() -> Model:
    """Random vectors of four words at three times of their training."""
    copies = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)
    return word_model(
        words=["king", "queen", "man", "cabbage"],
        vectors=copies[-1],
        snapshots=Snapshots(words_read=(10, 20, 40), vectors=copies),
    )


def make_feature_model() -> Model:
    """A classifier that reads a weighted sum of layers."""
    head = LinearFeatureHead(16, 2, inputs=FeatureInputs(mixed_layers=3))
    settings = FeatureSettings(input_size=16, layers="scalar-mix", mixed_layers=3)
    task = Task(name="classify", features=settings)
    return replace(tiny_model(), feature_head=head, task=task)


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
    "embeddings": lambda: cloze.explain.embeddings("cloze-en", TEXT, layers="0,12"),
    "embeddings: several texts": lambda: cloze.explain.embeddings(
        "cloze-en", [text for text, _ in PYTHONS]
    ),
    "occurrences": lambda: cloze.explain.occurrences(
        "cloze-en",
        [text for text, _ in PYTHONS],
        word="Python",
        senses=[sense for _, sense in PYTHONS],
        layers="0,6,12",
    ),
    "occurrences: by layer": lambda: cloze.explain.occurrences(
        "cloze-en", [text for text, _ in PYTHONS], word="Python", layers="1,12", color="layer"
    ),
    "gates": lambda: cloze.explain.gates(neural_model("lstm"), "the cat sat on the mat"),
    "gates: both directions": lambda: cloze.explain.gates(elmo_model(), "the cat sat"),
    "layer_weights": lambda: cloze.explain.layer_weights(make_feature_model()),
    "neighbors": lambda: cloze.explain.neighbors(make_word_vectors(), "king cabbage", top=3),
    "backoff": lambda: cloze.explain.backoff(text_model(order=3), "the cat sat on a mat"),
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
