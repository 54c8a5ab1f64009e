"""How large a model is, whatever it is made of."""

from typing import Any

from cloze.checkpoint.model import Model
from cloze.checkpoint.ngram import NGramModel
from cloze.models.word2vec import WordVectors


def count_parameters(model: Any) -> int:  # noqa: ANN401 - any that is loaded
    """Its parameters; the n-grams of an n-gram model, the numbers of word vectors."""
    if isinstance(model, NGramModel):
        return sum(len(level.keys) for level in model.module.levels)
    if isinstance(model, WordVectors):
        grams = 0 if model.gram_vectors is None else model.gram_vectors.size
        return model.vectors.size + grams
    reader = model.reader if isinstance(model, Model) else None
    modules = [model.module] if reader is None else [model.module, reader]
    return sum(weight.numel() for part in modules for weight in part.parameters())
