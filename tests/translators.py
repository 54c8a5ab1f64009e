"""Tiny translators."""

import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.models.configs.seq2seq import Seq2SeqConfig
from cloze.models.configs.transformer import TransformerConfig
from cloze.models.seq2seq import Seq2Seq
from cloze.models.transformer import Transformer
from cloze.text.joint_bpe import train_joint_bpe
from helpers import scramble

SIZE = 23
SHAPES = {
    "transformer": {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 24,
        "dropout": 0.0,
    },
    "seq2seq": {"hidden_size": 16, "embedding_size": 8, "num_layers": 1, "dropout": 0.0},
}
WORDS = [
    "ein",
    "zwei",
    "drei",
    "Hund",
    "Katze",
    "läuft",
    "schläft",
    "und",
    "die",
    "der",
    ".",
    "!",
    "猫",
    "in",
    "Café",
]
TEXTS = [" ".join(WORDS[n % 15] for n in range(at, at + 3 + at % 5)) for at in range(60)]

# every manner of model that there is
VARIETIES = {
    "transformer": ("transformer", {}),
    "pre-norm": ("transformer", {"norm": "pre"}),
    "halves": ("transformer", {"position_encoding": "halves"}),
    "learned": ("transformer", {"position_encoding": "learned", "max_positions": 24}),
    "separate": (
        "transformer",
        {"embeddings": "separate", "tie_embeddings": False, "num_decoder_layers": 1},
    ),
    "plain-rnn": ("seq2seq", {"cell": "rnn", "attention": "none"}),
    "plain-lstm": ("seq2seq", {"cell": "lstm", "attention": "none", "num_layers": 2}),
    "bahdanau": ("seq2seq", {"attention": "bahdanau"}),
    "one-way": ("seq2seq", {"cell": "lstm", "bidirectional": False, "embeddings": "separate"}),
    **{
        f"luong-{score}": (
            "seq2seq",
            {"attention": "luong", "attention_score": score, "cell": "lstm"},
        )
        for score in ("dot", "general", "concat", "cosine")
    },
    "unfed": ("seq2seq", {"attention": "luong", "input_feeding": False, "num_layers": 2}),
}


def config_of(variety: str, size: int = SIZE):
    family, changes = VARIETIES[variety]
    kind = TransformerConfig if family == "transformer" else Seq2SeqConfig
    return kind(vocab_size=size, **(SHAPES[family] | changes))


def module_of(variety: str, seed: int = 0, scale: float = 0.4):
    """A scrambled model in double precision."""
    config = config_of(variety)
    made = (Transformer if isinstance(config, TransformerConfig) else Seq2Seq)(config)
    return scramble(made, seed, scale).double().eval()


def translator(variety: str = "transformer", size: int = 300, scale: float = 0.4) -> Model:
    """A scrambled model with a vocabulary."""
    tokenizer = train_joint_bpe(TEXTS, size)
    made = Model.from_config(
        config_of(variety, tokenizer.vocab_size), tokenizer, rng=torch.Generator().manual_seed(0)
    )
    scramble(made.module, seed=2, scale=scale)
    return made


def some_ids(rows: int, length: int, seed: int = 1):
    return torch.randint(1, SIZE, (rows, length), generator=torch.Generator().manual_seed(seed))


def train_translator(source, target, out, recipe=None, *, dev=None, **how):
    """`cloze.finetune` for the task translate."""
    return cloze.finetune("translate", None, [source, target], out, recipe, dev=dev or (), **how)
