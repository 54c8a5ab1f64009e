"""Published ELMo models: load and save options.json and weights.hdf5."""

import os
from pathlib import Path

import torch

from cloze.checkpoint.atomic import atomic_folder, translate_write_errors
from cloze.checkpoint.model import Model
from cloze.errors import FolderError
from cloze.files import write_json
from cloze.interop.allennlp import make_options, read_options, read_weights, write_weights
from cloze.models.build import build_on_meta
from cloze.text import backends
from cloze.text.tokenizer import Tokenizer
from cloze.text.word_characters import WordCharacterTokenizer

OPTIONS_FILE, WEIGHTS_FILE = "options.json", "weights.hdf5"


def load_published(source: str | os.PathLike[str]) -> Model:
    """Load a published ELMo from its HDF5 file; its options.json is beside it.

    Such a model has no vocabulary and no output layer. Words are split as BERT does.
    """
    weights = Path(source)
    config = read_options(_find_options(weights))
    module = build_on_meta(config)
    arrays = read_weights(weights, config)
    tensors = {name: torch.from_numpy(one) for name, one in arrays.items()}
    module.load_state_dict(tensors, assign=True)
    return Model(module=module.eval(), config=config, tokenizer=make_tokenizer())


def make_tokenizer() -> WordCharacterTokenizer:
    """A tokenizer without a vocabulary: every word is read by its characters."""
    vocab = {token: number for number, token in enumerate(backends.BERT_TOKENS.values())}
    normalizer = backends.build_bert_normalizer(lowercase=False, strip_accents=None, chinese=True)
    plain = Tokenizer(
        backends.build_word_level(vocab, normalizer), special_tokens=backends.BERT_TOKENS
    )
    return WordCharacterTokenizer.from_tokenizer(plain)


def save_published(model: Model, folder: Path, *, force: bool = False) -> Path:
    """Write options.json and weights.hdf5; without the output layer, which that layout lacks."""
    weights = {
        name: one.detach().float().cpu().numpy()
        for name, one in model.module.state_dict().items()
        if not name.startswith("output.")
    }
    with translate_write_errors(folder), atomic_folder(folder, force=force) as work:
        write_json(work / OPTIONS_FILE, make_options(model.config), indent=2)
        write_weights(work / WEIGHTS_FILE, model.config, weights)
    return folder


def _find_options(weights: Path) -> Path:
    """options.json, or for NAME_weights.hdf5 NAME_options.json, in the same folder."""
    names = (weights.name.replace(WEIGHTS_FILE, OPTIONS_FILE), OPTIONS_FILE)
    for name in names:
        path = weights.with_name(name)
        if path.suffix == ".json" and path.is_file():
            return path
    raise FolderError(
        f"there is no {OPTIONS_FILE} beside {weights}",
        fix="put the options of the published model into the same folder: NAME_options.json for "
        "NAME_weights.hdf5, or options.json",
    )
