"""A folder with the files and models that the documents name, as small as they may be."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import cloze
from cloze.data.images.decode import encode_png
from cloze.models import registry
from document_files import write_files
from images import clip_model, diffusion_model, drawings

ROOT = Path(__file__).resolve().parents[2]
# (regular expression, replacement): what makes the recipes small
REDUCED = [
    (r"^num_layers = \d+", "num_layers = 1"),
    (r'^(family = "elmo")\npreset = "\w+"', r'\1\npreset="tiny"'),
    (r"^batch_size = 512\nepochs", "batch_size = 64\nepochs"),
    (r"^batch_size = (256|512)", "batch_size = 4"),
    (
        r'^(family = "(?:diffusion|clip)")\npreset = "mini"\nimage_size = 64',
        r'\1\npreset="tiny"\nimage_size = 16',
    ),
    (r'^preset = "\w+"', 'preset = "tiny"\nnum_layers = 4\nhidden_size = 32'),
    (r"^(hidden_size|embedding_size|intermediate_size) = \d+", r"\1 = 32"),
    (r"^num_heads = \d+", "num_heads = 2"),
    (r"^max_positions = 1024", "max_positions = 128"),
    (r"^size = \d+", "size = 300"),
    (r"^batch_tokens = \d+", "batch_tokens = 512"),
    (r"^chunk_length = \d+", "chunk_length = 8"),
    (r'^(encoder|init_from) = "cloze-en"', r'\1 = "runs/bert"'),
    (r"^num_candidates = \d+", "num_candidates = 16"),
    (r"^accumulate = \d+", "accumulate = 1"),
    (r"^(epochs) = [\d.]+", r"\1 = 1"),
    (r"^(minutes|steps) = [\d.]+", "steps = 2"),
    (r'^dtype = "bfloat16"', "fast = true"),  # on a CPU: batches made as on a GPU
]


def make_bert(out: Path, *settings: str) -> None:
    cloze.pretrain("text/*.txt", out, "laptop", settings=["run.steps=2", *settings])


def make_translator(out: Path) -> None:
    cloze.finetune("translate", None, ("train.en", "train.de"), out)


def make_model(task: str, data: str) -> Callable[[Path], object]:
    return lambda out: cloze.finetune(task, "runs/bert", data, out)


def copy_bert(out: Path) -> None:
    cloze.load("runs/bert").save(out)


def copy_encoder(out: Path) -> None:
    """Without a head, as sentence-transformers folders are."""
    bert = cloze.load("runs/bert")
    cloze.Model.from_config(bert.config, bert.tokenizer, rng=torch.Generator()).save(out)


def make_arpa(out: Path) -> None:
    cloze.export("arpa", "runs/ngram", out)


def make_music(out: Path) -> None:
    """A scale, in two files."""
    notes = [f"on{pitch} wait20 off{pitch}" for pitch in range(60, 72)]
    for name in ("a", "b"):
        cloze.write_midi(" ".join(notes), out / f"{name}.mid")


def make_pictures(out: Path) -> None:
    """A folder with drawings."""
    out.mkdir()
    for number, example in enumerate(drawings(12)):
        (out / f"{example.caption} {number}.png").write_bytes(encode_png(example.load()))


# what a document may name without having made it before
MODELS: dict[str, Callable[[Path], object]] = {
    "runs/bert": make_bert,
    "runs/films": make_model("classify", "train.tsv"),
    "runs/small-films": make_model("classify", "train.tsv"),
    "runs/sst2": make_model("classify", "train.tsv"),
    "runs/small-sst2": make_model("classify", "train.tsv"),
    "runs/my-bert": make_bert,
    "runs/ner": make_model("tag", "ner.train"),
    "runs/squad": make_model("answer", "squad.json"),
    "runs/swag": make_model("choose", "choices.jsonl"),
    "runs/retro": lambda out: cloze.pretrain("text/*.txt", out, "retro", settings=["run.steps=1"]),
    "runs/causal": lambda out: make_bert(
        out, "objective.kind=causal", "sampling.pairs=none", "run.fast=true"
    ),
    "runs/search": lambda out: cloze.finetune("embed", "runs/bert", "pairs.tsv", out),
    "runs/student": copy_encoder,
    "all-MiniLM-L6-v2": copy_encoder,
    "MINILM": copy_bert,
    "runs/ngram": lambda out: cloze.pretrain("text/*.txt", out, family="ngram"),
    "runs/ptb": lambda out: cloze.pretrain("text/*.txt", out, family="ngram"),
    "runs/nnlm": lambda out: cloze.pretrain("text/*.txt", out, family="nnlm"),
    "runs/lstm": lambda out: cloze.pretrain("text/*.txt", out, family="lstm"),
    "runs/elmo": lambda out: cloze.pretrain("text/*.txt", out, family="elmo"),
    "published-elmo": lambda out: cloze.export("allennlp", "runs/elmo", out),
    "runs/reviews": lambda out: cloze.index("runs/bert", "reviews.jsonl", out, store="exact"),
    "runs/words": lambda out: cloze.load("glove.txt").save(out),
    "their.arpa": make_arpa,
    "runs/en-de": make_translator,
    "runs/news": lambda out: cloze.finetune(
        "summarize", None, "articles.jsonl", out, "transformer"
    ),
    "runs/more": make_translator,
    "runs/emoji": lambda out: diffusion_model().save(out),
    "runs/drawings": lambda out: diffusion_model().save(out),
    "runs/clip": lambda out: clip_model().save(out),
    "emoji": make_pictures,
    "query.png": lambda out: out.write_bytes(encode_png(drawings(1)[0].load())),
    "midi": make_music,
    "other-midi": make_music,
    "beginning.mid": lambda out: cloze.write_midi("on60 wait20 off60", out),
    "VOCABULARY": lambda out: cloze.vocabulary("text/*.txt", out=out, size=200),
}
NEEDS = {
    "runs/search": ["runs/bert"],
    "runs/sst2": ["runs/bert"],
    "runs/small-sst2": ["runs/bert"],
    "runs/ner": ["runs/bert"],
    "runs/squad": ["runs/bert"],
    "runs/swag": ["runs/bert"],
    "runs/films": ["runs/bert"],
    "runs/small-films": ["runs/bert"],
    "runs/student": ["runs/bert"],
    "all-MiniLM-L6-v2": ["runs/bert"],
    "MINILM": ["runs/bert"],
    "runs/reviews": ["runs/bert"],
    "runs/retro": ["runs/bert"],
    "their.arpa": ["runs/ngram"],
    "published-elmo": ["runs/elmo"],
    "emoji": ["runs/bert"],  # recipes for images begin with a text encoder
}


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files; models are added when a document names them."""
    folder = tmp_path_factory.mktemp("workspace")
    write_files(folder)
    return folder


@pytest.fixture(scope="session")
def small_recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The recipes with models, batches and budgets that take seconds."""
    folder = tmp_path_factory.mktemp("recipes")
    for path in ROOT.glob("recipes/*.toml"):
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in REDUCED:
            text = re.sub(pattern, replacement, text, flags=re.M)
        (folder / path.name).write_text(text, encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture
def provide(
    workspace: Path,
    small_recipes: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Path]:
    """A copy of the files, and of the models that a text names, as the working directory."""
    # for this test alone: those of other folders run in the same process, with the real recipes
    monkeypatch.setattr("cloze.make.recipe.files.list_recipes", lambda: small_recipes)

    def add(name: str) -> None:
        if not (workspace / name).exists():
            for other in NEEDS.get(name, []):
                add(other)
            (workspace / name).parent.mkdir(exist_ok=True)
            MODELS[name](Path(name))

    def copy(text: str) -> Path:
        monkeypatch.chdir(workspace)
        for name in MODELS:
            if name in text:
                add(name)
        shutil.copytree(workspace, tmp_path / "work")
        monkeypatch.chdir(tmp_path / "work")
        monkeypatch.syspath_prepend(tmp_path / "work")  # for modules that a document defines
        monkeypatch.setattr(registry, "FAMILIES", dict(registry.FAMILIES))  # and families
        return tmp_path / "work"

    return copy
