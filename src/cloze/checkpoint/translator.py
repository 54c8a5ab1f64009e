"""A translator as everyone holds it, and its folder: config.json, model.safetensors, tokenizer."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cloze.checkpoint.own import Saved, complete_config, put_weights, read_settings, write_own
from cloze.config import in_range
from cloze.device import resolve_device
from cloze.errors import ConfigError, FolderError
from cloze.models.configs.seq2seq import Seq2SeqConfig
from cloze.models.configs.transformer import TransformerConfig
from cloze.models.seq2seq import Seq2Seq
from cloze.models.transformer import Transformer
from cloze.nn.fuse import move_to_device
from cloze.nn.utils import skip_allocation
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer

Config = TransformerConfig | Seq2SeqConfig
Module = Transformer | Seq2Seq

CONFIGS: dict[str, type[Config]] = {"transformer": TransformerConfig, "seq2seq": Seq2SeqConfig}


@dataclass(frozen=True, kw_only=True, repr=False)
class Translator(Saved):
    """What `cloze.load` gives for a translator's folder, and `translate` takes."""

    module: Module
    tokenizer: Tokenizer
    config: Config
    longest: int  # tokens of the longest sentence it learned from, its end among them

    @classmethod
    def new(cls, config: Config, tokenizer: Tokenizer, *, rng: torch.Generator) -> "Translator":
        """A translator with fresh random weights, drawn from `rng` and nothing else."""
        module = on_meta(config).to_empty(device=rng.device)
        module.init_weights(rng)
        return cls(module=module.eval(), tokenizer=tokenizer, config=config, longest=0)

    @property
    def limit(self) -> int | None:
        """The most tokens of a sentence, its end among them; None: no end."""
        return self.module.max_positions

    @property
    def device(self) -> torch.device:
        return self.module.target_embeddings.weight.device

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Sentences as ids, each with its end."""
        return sentences(self.tokenizer, texts)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; a byte that is no part of a character becomes �."""
        return self.tokenizer.decode(list(ids)).removeprefix(" ")

    def _write(self, work: Path) -> None:
        write_own(work, self.module, self.config, self.tokenizer, longest_learned=self.longest)


def on_meta(config: Config) -> Module:
    """The module without memory behind it: shapes to check, weights to be put in."""
    config.check_complete()
    with skip_allocation():
        if isinstance(config, TransformerConfig):
            return Transformer(config)
        return Seq2Seq(config)


def learn_pieces(texts: Sequence[str], size: int, **options: Any) -> Tokenizer:  # noqa: ANN401
    """One vocabulary for both languages: byte-level BPE.

    It spells every text, one never seen in single bytes, and gives it back as it was.
    """
    return train_tokenizer(
        [_spaced(text) for text in texts], kind="bpe", vocab_size=size, **options
    )


def sentences(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Sentences as ids, each with its end."""
    assert tokenizer.eos_id is not None
    return [
        [*ids, tokenizer.eos_id] for ids in tokenizer.encode_ids([_spaced(one) for one in texts])
    ]


def load_translator(
    folder: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Translator:
    """The translator in a folder; shapes are held against config.json before a weight is read."""
    place, where = Path(folder), resolve_device(device)
    config, longest = _read_config(place)
    tokenizer = Tokenizer.load(place)
    if tokenizer.vocab_size > config.vocab_size or tokenizer.eos_id != config.eos_id:
        raise FolderError(
            f"the tokenizer has {tokenizer.vocab_size:,} pieces and the end {tokenizer.eos_id}, "
            f"config.json {config.vocab_size:,} and {config.eos_id}",
            fix="the two are not of one model; take both from one folder",
        )
    module = on_meta(config)
    put_weights(module, place)
    return Translator(
        module=move_to_device(module, where, dtype).eval(),
        tokenizer=tokenizer,
        config=config,
        longest=longest,
    )


def _read_config(folder: Path) -> tuple[Config, int]:
    family, values = read_settings(folder, CONFIGS, "a translator")
    try:
        longest = in_range("longest_learned", values.pop("longest_learned", 0), 0, 1 << 30)
        return complete_config(CONFIGS[family], values), longest
    except ConfigError as error:
        raise FolderError(f"config.json: {error.problem}", fix=error.fix) from None


def _spaced(text: str) -> str:
    """A sentence's first word, too, has a space before it, and so the piece it has elsewhere."""
    return f" {text}"
