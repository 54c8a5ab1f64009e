"""Features of a frozen model: selection of layers, pooling, and classifiers on features.

A model is a source of features if its module has `num_layers` and `hidden_states`, which yields
the vectors of layer 0 (the embeddings), 1, …; negative numbers count from the last layer. Layers
may have different sizes.
n tokens of a packed batch, b sequences, t tokens of one, p positions of an item, d size of the
selected layers, c labels.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import isfinite
from operator import index
from reprlib import repr as short
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import FeatureSettings
from cloze.contention import MONITOR
from cloze.data.labelled.batch import EncodedExample
from cloze.errors import ConfigError, InputError
from cloze.nn.engine import compute_layers, lock_engine
from cloze.nn.feature_heads import UNKNOWN, FeatureHead
from cloze.nn.layout import Packed
from cloze.nn.pooling import pool
from cloze.nn.utils import HostCopy
from cloze.progress import ProgressCallback
from cloze.tasks.inference import carry_states, divide_batches
from cloze.text.joint_bpe import add_prefix_space
from cloze.text.word_characters import WordCharacterTokenizer


@dataclass(frozen=True)
class LayerSelection:
    """The layers to use, and whether they are added or concatenated."""

    numbers: tuple[int, ...]
    add: bool = False
    mixed: bool = False  # concatenated, for a head that learns a weighted sum of them
    weights: tuple[float, ...] = ()  # of the layers, which are then added

    def combine(self, layers: Iterable[Tensor]) -> Tensor:
        """Combine the selected layers of a model; the others are freed as they come."""
        needed = islice(layers, max(self.numbers) + 1)  # higher layers are not computed
        kept = {number: x for number, x in enumerate(needed) if number in self.numbers}
        chosen = [kept[number] for number in self.numbers]
        if self.weights:
            chosen = [w * x for w, x in zip(self.weights, chosen, strict=True)]
        if len(chosen) == 1:
            return chosen[0]
        sizes = [one.shape[-1] for one in chosen]
        if (self.add or self.mixed) and len(set(sizes)) > 1:
            named = zip(self.numbers, sizes, strict=True)
            raise InputError(
                "layers of different sizes cannot be added: "
                + ", ".join(f"layer {number} has {size}" for number, size in named),
                fix="concatenate layers by their numbers, such as 1,2, or choose one",
            )
        return torch.stack(chosen).sum(0) if self.add else torch.cat(chosen, dim=-1)


# For a model with n layers: the choices of Devlin et al. 2018, table 7. Their sum of all layers is
# without the embeddings.
LAYER_CHOICES = {
    "embeddings": lambda n: LayerSelection((0,)),  # noqa: ARG005
    "second-to-last": lambda n: LayerSelection((n - 1,)),
    "last": lambda n: LayerSelection((n,)),
    "sum-last-4": lambda n: LayerSelection((n - 3, n - 2, n - 1, n), add=True),
    "concat-last-4": lambda n: LayerSelection((n - 3, n - 2, n - 1, n)),
    "sum-all": lambda n: LayerSelection(tuple(range(1, n + 1)), add=True),
}
# For a feature head only, which learns the weights: all layers and the embeddings, as in Peters et
# al. 2018.
SCALAR_MIX = "scalar-mix"


def select_feature_layers(choice: str, num_layers: int) -> LayerSelection:
    """As `select_layers`, or scalar-mix: all layers, for a head that learns their weights."""
    if choice == SCALAR_MIX:
        return LayerSelection(tuple(range(num_layers + 1)), mixed=True)
    return select_layers(choice, num_layers)


LayerChoice = str | int | Sequence[int] | Mapping[int, float]
_WEIGHTS = re.compile(r"-?\d+:[-+.\deE]+(,-?\d+:[-+.\deE]+)*")


def select_layers(choice: LayerChoice, num_layers: int) -> LayerSelection:
    """Parse a choice of layers: a name, a number, or several numbers to concatenate.

    Layers with weights, {0: 0.2, 1: 0.5, 2: 0.3} or "0:0.2,1:0.5,2:0.3", are a weighted sum.
    """
    if isinstance(choice, str) and _WEIGHTS.fullmatch(choice):
        choice = _parse_weights(choice)
    if isinstance(choice, Mapping):
        numbers = _select_numbers(list(choice), num_layers)
        return LayerSelection(numbers, add=True, weights=_convert_weights(choice))
    if isinstance(choice, str) and re.fullmatch(r"-?\d+(,-?\d+)*", choice):
        choice = [int(number) for number in choice.split(",")]
    if isinstance(choice, int):
        choice = [choice]
    if not isinstance(choice, str):
        return LayerSelection(_select_numbers(choice, num_layers))
    if choice not in LAYER_CHOICES:
        raise _unknown_layers_error(choice)
    layers = LAYER_CHOICES[choice](num_layers)
    if min(layers.numbers) < (0 if choice in ("embeddings", "second-to-last", "last") else 1):
        raise InputError(
            f"{choice} needs more layers than this model has ({num_layers})",
            fix="choose last, or give layer numbers",
        )
    return layers


def _select_numbers(choice: Sequence[int], num_layers: int) -> tuple[int, ...]:
    try:
        numbers = [index(number) for number in choice]
    except TypeError:
        raise ConfigError(
            f"layers is {short(choice)}, which is neither a name nor layer numbers",
            fix=f"use layer numbers, or one of {', '.join(LAYER_CHOICES)}",
        ) from None
    if not numbers:
        raise ConfigError(
            "layers is empty", fix=f"use layer numbers, or one of {', '.join(LAYER_CHOICES)}"
        )
    return tuple(_check_layer_number(number, num_layers) for number in numbers)


def _parse_weights(choice: str) -> dict[int, float]:
    pairs = [one.split(":") for one in choice.split(",")]
    try:
        return {int(number): float(weight) for number, weight in pairs}
    except ValueError:
        raise _faulty_weight_error(choice) from None


def _convert_weights(choice: Mapping[int, float]) -> tuple[float, ...]:
    try:
        weights = tuple(map(float, choice.values()))
    except (TypeError, ValueError, OverflowError):
        raise _faulty_weight_error(choice) from None
    if not all(map(isfinite, weights)):
        raise _faulty_weight_error(choice)
    return weights


def _faulty_weight_error(choice: object) -> ConfigError:
    return ConfigError(
        f"layers is {short(choice)}, where a weight is not a finite number",
        fix="give each layer a weight, such as 0:0.2,1:0.5,2:0.3",
    )


def _unknown_layers_error(choice: str) -> ConfigError:
    names = ", ".join(LAYER_CHOICES)
    if choice == SCALAR_MIX:
        return ConfigError(
            "scalar-mix is a weighted sum of the layers whose weights a classifier learns",
            fix=f"train one (cloze finetune --recipe features --layers scalar-mix), or use {names}",
        )
    return ConfigError(
        f"layers is {choice!r}, which is neither a name nor layer numbers",
        fix=f"use layer numbers such as 0,-1, or one of {names}",
    )


def _check_layer_number(number: int, num_layers: int) -> int:
    if not -num_layers - 1 <= number <= num_layers:
        raise InputError(
            f"there is no layer {number}: the model has {num_layers} layers",
            fix=f"use 0 (embeddings) to {num_layers}, or -1 (last) to {-num_layers - 1}",
        )
    return number % (num_layers + 1)


def make_id_tensor(
    sequences: Iterable[Sequence[Any]], device: torch.device | None = None
) -> Tensor:
    """The ids of packed sequences: n, or n k padded with −1 if a token has several."""
    sequences = list(sequences)
    first = next((one[0] for one in sequences if len(one)), 0)
    if isinstance(first, int):
        count = sum(map(len, sequences))
        flat = np.fromiter(chain.from_iterable(sequences), np.int64, count)
        return torch.from_numpy(flat).to(device)  # faster than from a list
    ids = list(chain.from_iterable(sequences))
    longest = max(map(len, ids))
    padded = [[*one, *[-1] * (longest - len(one))] for one in ids]
    return torch.from_numpy(np.array(padded, np.int64)).to(device)


def check_pooling(model: Model, modes: Sequence[str]) -> None:
    """Reject cls pooling where the vector of the first token is not one of the text."""
    if "cls" not in modes:
        return
    if is_causal(model):
        raise InputError(
            "cls pooling does not work for a causal model: [CLS] cannot attend to the text",
            fix="use pooling mean or max",
        )
    if not has_cls(model):
        raise InputError(
            f"cls pooling does not work for this model ({model.family.description}): it has no "
            "[CLS] token that stands for the text",
            fix="use pooling mean or max",
        )


def is_causal(model: Model) -> bool:
    """Whether no token of a model depends on later ones."""
    return bool(getattr(model.module, "is_causal", False))


def prepare_source(model: Model) -> Model:
    """The model with the tokenizer for features: that of a translator begins with a space.

    A recurrent language model becomes an encoder that has the tokenizer's ids.
    """
    if model.family.name == "lstm":
        from cloze.checkpoint.recurrent_encoder import make_recurrent_encoder

        return make_recurrent_encoder(model)
    if model.family.kind != "translator":
        return model
    return replace(model, tokenizer=add_prefix_space(model.tokenizer))


def skips_zeros(model: Model) -> bool:
    """Whether vectors of zeros are unknown words, which are not pooled."""
    return bool(getattr(model.module, "unknown_is_zero", False))


def has_cls(model: Model) -> bool:
    """Whether the first token of every text is one that stands for the text."""
    # a word whose characters are read is no summary of the text, even if it is the first
    has_words = isinstance(model.tokenizer, WordCharacterTokenizer)
    return getattr(model.tokenizer, "cls_id", None) is not None and not has_words


def choose_pooling(model: Model) -> str:
    """The pooling of texts that a classifier on features uses by default."""
    return "cls" if has_cls(model) and not is_causal(model) else "mean"


@torch.inference_mode()
def measure_features(model: Model, layers: LayerSelection) -> int:
    """The size of the vectors that a selection of layers gives, found with a short text."""
    ids = model.tokenizer.encode_ids([model.tokenizer.sample_word])[0]
    packed = Packed.from_lengths([len(ids)], model.device)
    flat = make_id_tensor([ids], model.device)
    return int(layers.combine(model.module.hidden_states(flat, packed)).shape[-1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """The features of items: of one sequence for each, or of two, the texts of a pair."""

    vectors: Sequence[Tensor]  # of each sequence: t d
    words: Sequence[Tensor] = ()  # of each sequence: t, rows of the task model's own embeddings
    per_item: int = 1  # sequences

    def __len__(self) -> int:
        """Number of items."""
        return len(self.vectors) // self.per_item

    def select(self, items: Iterable[int]) -> "Features":
        """The features of these items."""
        numbers = [self.per_item * n + k for n in items for k in range(self.per_item)]
        return replace(
            self,
            vectors=[self.vectors[n] for n in numbers],
            words=[self.words[n] for n in numbers] if self.words else (),
        )

    @property
    def sizes(self) -> list[int]:
        """The number of vectors of each sequence."""
        return [len(one) for one in self.vectors]

    def apply(self, feature_head: FeatureHead) -> Tensor:
        """The logits of all items, on the device of the task model."""
        device = next(feature_head.parameters()).device
        words = torch.cat(list(self.words)).to(device) if self.words else None
        return feature_head(torch.cat(list(self.vectors)).to(device), self.sizes, words)


@torch.inference_mode()
def extract_features(
    model: Model,
    items: Sequence[EncodedExample],
    spec: FeatureSettings,
    *,
    pooled: bool,
    batch_tokens: int,
    progress: ProgressCallback | None = None,
) -> Features:
    """Compute the features of each item: one pooled vector (1 d), or one per position (p d).

    A head that reads whole sequences (cnn) gets the vectors of all tokens (t d); a BiLSTM for texts
    reads those at the first token of each word.
    """
    sequences = [one for item in items for one in item.sequences]
    if pooled and not spec.reads_words and spec.kind != "cnn":
        check_pooling(model, (spec.pooling,))
    per_item = len(sequences) // len(items) if items else 1
    words = look_up_words(model.feature_head, sequences) if spec.embedding_size else ()
    if spec.contextual == "none":  # only the lengths are used
        vectors = [torch.empty(len(one.positions), 0) for one in sequences]
        return Features(vectors=vectors, words=words, per_item=per_item)
    select = _make_selector(model, spec, pooled=pooled)
    layers = select_feature_layers(spec.layers, model.module.num_layers)
    found: dict[int, Tensor] = {}
    batches = divide_batches(model, [len(one.ids) for one in sequences], batch_tokens)
    with carry_states(model):
        for batch in batches:
            MONITOR.check()
            packed = Packed.from_lengths((len(sequences[n].ids) for n in batch), model.device)
            ids = make_id_tensor([sequences[n].ids for n in batch])
            types = torch.tensor([x for n in batch for x in sequences[n].type_ids])
            with lock_engine(model.module):
                combined = compute_layers(model.module, ids, packed, types, layers)  # n d
                copied = HostCopy(combined.float()).wait()
            for n, vectors in zip(batch, copied.split(list(packed.lengths)), strict=True):  # t d
                kept = vectors if len(vectors) else vectors.new_zeros(1, vectors.shape[-1])
                found[n] = select(kept, sequences[n])
            if progress:
                progress("sequences", len(found) // per_item, len(items))
    return Features(
        vectors=[found[n] for n in range(len(sequences))], words=words, per_item=per_item
    )


def _make_selector(
    model: Model, spec: FeatureSettings, *, pooled: bool
) -> Callable[[Tensor, EncodedExample], Tensor]:
    """What of the token vectors of a sequence (t d) is a feature."""
    if spec.kind == "cnn":
        return lambda vectors, _: vectors
    if pooled and not spec.reads_words:
        skip = skips_zeros(model)
        return lambda vectors, _: pool(vectors[None], (spec.pooling,), False, skip_zeros=skip)
    return lambda vectors, item: vectors[list(item.positions)]


def look_up_words(
    feature_head: FeatureHead | None, sequences: Sequence[EncodedExample]
) -> list[Tensor]:
    """The rows of the words of sequences in a task model's own embeddings."""
    assert feature_head is not None
    rows = {word: row for row, word in enumerate(feature_head.vocabulary, UNKNOWN + 1)}
    return [
        torch.tensor([rows.get(word.lower(), UNKNOWN) for word in one.spellings], dtype=torch.long)
        for one in sequences
    ]


@torch.inference_mode()
def apply_feature_head(model: Model, features: Features) -> list[Tensor]:
    """Apply the classifier of a feature-based model to the features of each item (p c)."""
    assert model.feature_head is not None
    if not len(features):
        return []
    logits = features.apply(model.feature_head).cpu()
    return list(logits.split(1 if model.feature_head.per_sequence else features.sizes))
