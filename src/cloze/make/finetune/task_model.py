"""A frozen model and a new task model on its features, before training."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.modules import build_feature_head
from cloze.checkpoint.task import MAX_WORDS, FeatureSettings
from cloze.device import resolve_device
from cloze.errors import ConfigError, InputError
from cloze.make.finetune.labelled import Labelled, adapt_model
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.make.recipe.transfer import TransferConfig
from cloze.models.word2vec import WordVectors
from cloze.nn.feature_heads import UNKNOWN, FeatureHead
from cloze.tasks.evaluate_labelled import TASK_FUNCTIONS
from cloze.tasks.features import (
    choose_pooling,
    has_cls,
    is_causal,
    measure_features,
    prepare_source,
    select_feature_layers,
)
from cloze.train.forward_context import seed_rng

MAX_VECTORS = 100_000  # of word vectors that are not words of the training data, the first ones
EMBEDDING_STD = 0.1  # of the initial embeddings of words without a vector


def build_task_model(base: Model, data: Labelled, recipe: FinetuneRecipe) -> Model:
    """The model without heads, and a new task model on its features."""
    base, device = prepare_source(base), resolve_device(recipe.run.device)
    vectors = _load_word_vectors(recipe.transfer.word_vectors)
    spec = _describe_features(base, data, recipe, vectors)
    body, task = _remove_heads(base, data, recipe), replace(data.task, features=spec)
    if not hasattr(body.config, "labels"):
        own: dict[str, Any] = {"labels": data.labels, "problem_type": data.problem}
        task = replace(task, **own)
    body = replace(body, task=task)
    words: list[str] = []
    if spec.embedding_size:
        words = _collect_words(body, data.train, vectors)
        spec = replace(spec, vocab_size=len(words) + 1)
    with seed_rng(torch.device("cpu"), recipe.run.seed):
        feature_head = build_feature_head(spec, len(data.labels))
        if words:
            _fill_embeddings(feature_head, words, vectors)
    return replace(
        body,
        task=replace(task, features=spec),
        feature_head=feature_head.to(device).eval(),
    )


def _describe_features(
    base: Model, data: Labelled, recipe: FinetuneRecipe, vectors: WordVectors | None
) -> FeatureSettings:
    table = recipe.transfer
    layers = select_feature_layers(table.layers, base.module.num_layers)
    size = measure_features(base, layers)
    kind = recipe.task_model
    is_network = kind != "linear"
    reads_words = kind == "bilstm" and recipe.task == "classify"
    mixed = len(layers.numbers) if layers.mixed else int(table.mix_scale == "learned")
    return FeatureSettings(
        input_size=size // len(layers.numbers) if layers.mixed else size,
        layers=table.layers,
        pooling=table.pooling or ("max" if reads_words else choose_pooling(base)),
        kind=kind,
        hidden_size=table.hidden_size if is_network else 0,
        num_layers=table.num_layers if is_network else 0,
        kernel_size=table.kernel_size if kind == "cnn" else 0,
        mixed_layers=mixed,
        learns_weights=table.mix_weights == "learned",
        learns_scale=table.mix_scale != "fixed",
        dropout=table.contextual_dropout,
        contextual=table.contextual,
        vocab_size=int(bool(vectors or table.embedding_size)),  # until the words are known
        embedding_size=vectors.hidden_size if vectors else table.embedding_size,
        reads_words=reads_words,
        compares_pairs=_compares_pairs(base, data, table),
    )


def _compares_pairs(base: Model, data: Labelled, table: TransferConfig) -> bool:
    """Whether the texts of pairs are read apart: by default if the model cannot read a pair."""
    paired = [getattr(one, "pair", None) is not None for one in data.train]
    reads_pairs = has_cls(base) or is_causal(base)
    if not any(paired) or table.pairs == "joint" or (table.pairs is None and reads_pairs):
        return False
    if not all(paired):
        single = data.train[paired.index(False)]
        raise InputError(
            f"{single.origin}: this is a single text, but other examples are pairs",
            fix="use data in which all examples are pairs, or --set transfer.pairs=joint",
        )
    return True


def _remove_heads(base: Model, data: Labelled, recipe: FinetuneRecipe) -> Model:
    """The model without task heads, with the recipe's maximum length; its weights are the same."""
    if hasattr(base.config, "labels"):
        return adapt_model(base, data, recipe, ())
    length = recipe.data.max_length
    tokenizer = base.tokenizer if length is None else base.tokenizer.with_max_length(length)
    return replace(base, tokenizer=tokenizer, pooling=None).to(resolve_device(recipe.run.device))


def _load_word_vectors(source: str | None) -> WordVectors | None:
    if source is None:
        return None
    found = load(source)
    if not isinstance(found.module, WordVectors):
        raise ConfigError(
            f"transfer.word_vectors names {found.family.description}, not word vectors",
            fix="use a folder of `cloze pretrain --family word2vec`, or a file of word vectors",
        )
    return found.module


def _collect_words(model: Model, examples: Sequence[Any], vectors: WordVectors | None) -> list[str]:
    """The words of the training data, the most frequent first, then those of word vectors."""
    assert model.task is not None
    groups = TASK_FUNCTIONS[model.task.name].encode_examples(model, examples, model.task)
    counts = Counter(
        word.lower()
        for group in groups
        for item in group
        for one in item.sequences
        for word in one.spellings
    )
    words = sorted(counts, key=lambda word: (-counts[word], word))
    if vectors is not None:
        more = dict.fromkeys(word.lower() for word in vectors.words[:MAX_VECTORS])
        words += [word for word in more if word not in counts]
    return words[: MAX_WORDS - 1]


@torch.no_grad()
def _fill_embeddings(
    feature_head: FeatureHead, words: Sequence[str], vectors: WordVectors | None
) -> None:
    """Initial embeddings: word vectors, or random; that of unknown words is zero."""
    feature_head.vocabulary = list(words)
    weight: Tensor = feature_head.get_parameter("embeddings.weight")
    weight.normal_(0.0, EMBEDDING_STD)
    weight[UNKNOWN] = 0.0
    if vectors is None:
        return
    for row, word in enumerate(words, UNKNOWN + 1):
        vector = vectors.find_vector(word)
        if vector is not None:
            weight[row] = torch.from_numpy(vector.copy())
