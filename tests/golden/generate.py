"""How the golden folders were made: written by commit 58e9c8d, run with that commit.

    PYTHONPATH=<a checkout of 58e9c8d>/src python tests/golden/generate.py

It is kept as documentation: neither pytest nor any test imports it, and it does not run with later
versions, whose names differ. `NAME/model` is a model folder, `NAME/expected.safetensors` holds the
inputs of a fixed batch (`input.*`) and what the model makes of them, `NAME/expected.json` what the
inference functions say about the texts in `data/`. Weights are random, texts are generated.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import cloze
from cloze.checkpoint.language import CONFIGS as LANGUAGE_CONFIGS
from cloze.checkpoint.language import NeuralModel
from cloze.checkpoint.model import Model
from cloze.checkpoint.ngram import NGramModel
from cloze.checkpoint.reader import new_reader
from cloze.checkpoint.task import Features, Task
from cloze.checkpoint.translator import CONFIGS as TRANSLATOR_CONFIGS
from cloze.checkpoint.translator import Translator, learn_pieces
from cloze.checkpoint.vectors import WordModel
from cloze.checkpoint.words import Vocabulary
from cloze.interop.sentence_transformers import Pooling
from cloze.models import MODELS, fresh
from cloze.models.ngram import BOS, EOS
from cloze.models.word2vec import Grams
from cloze.text.spaced import learn_spaced
from cloze.text.tokenizer import Tokenizer
from cloze.train.ngram import fit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import adapter_58e9c8d as adapter  # noqa: E402
from texts_58e9c8d import BERT_PIECES, INPUTS, WORDS, sentences, write_data  # noqa: E402

# Models: random weights, biases and norms too, so that a mistake in any of them shows.


def scramble(module, scale=0.6):
    """Matrices large enough that texts differ in what comes out, biases small for the same."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in sorted(module.named_parameters()):
            matrix = weight.dim() > 1
            weight.copy_(torch.randn(weight.shape, generator=rng) * (scale if matrix else 0.1))
            if "norm" in name.lower() and name.endswith("weight"):
                weight.add_(1.0)
    return module.eval()


def encoder(*heads, family="bert", tokenizer=None, pools=None, task=None, reader=None, **changes):
    shape = {
        "vocab_size": len(BERT_PIECES),
        "width": 8,
        "layers": 2,
        "heads": 2,
        "hidden": 12,
        "positions": 40,
        "labels": ("no", "yes"),
    }
    config = MODELS[family].config(**(shape | changes))
    return Model(
        module=scramble(fresh(config, heads, rng=torch.Generator())),
        config=config,
        tokenizer=tokenizer or Tokenizer.from_vocab(BERT_PIECES, lowercase=True),
        pooling=pools,
        task=task,
        reader=reader,
    )


def modern(*heads, **changes):
    local = {"layers": 3, "global_every": 2, "window": 8, "hidden": 12}
    return encoder(*heads, family="modernbert", **(local | changes))


def with_reader(task, labels, features, **changes):
    torch.manual_seed(0)
    reader = scramble(new_reader(features, len(labels)))
    described = Task(name=task, policy="head", features=features)
    return encoder(labels=labels, task=described, reader=reader, **changes)


def language(family, **shape):
    tokenizer = learn_spaced(sentences(60, 7))
    size = len(Vocabulary(tokenizer).words)
    config = LANGUAGE_CONFIGS[family](vocab_size=size, bos_id=BOS, **shape)
    model = NeuralModel.new(config, tokenizer, rng=torch.Generator().manual_seed(0))
    scramble(model.module)
    with torch.no_grad():  # the begin symbol is never said
        bias = model.module.output.bias if family == "nnlm" else model.module.bias
        bias[BOS] = -1e4
    return model


def translator(family, **shape):
    tokenizer = learn_pieces(sentences(60, 7), 270)
    config = TRANSLATOR_CONFIGS[family](vocab_size=tokenizer.size, **shape)
    model = Translator.new(config, tokenizer, rng=torch.Generator().manual_seed(0))
    scramble(model.module)
    return model


def transformer(**shape):
    return translator(
        "transformer", **({"width": 8, "layers": 2, "heads": 2, "hidden": 12} | shape)
    )


def seq2seq(**shape):
    return translator("seq2seq", **({"width": 8, "embedding": 6} | shape))


def ngram():
    lines = sentences(60, 7)
    tokenizer = learn_spaced(lines)
    ids = Vocabulary(tokenizer).ids(lines)
    with tempfile.TemporaryDirectory() as folder:
        size = len(Vocabulary(tokenizer).words)
        module = fit(ids, vocab_size=size, order=3, folder=Path(folder), memory=1 << 20)
    return NGramModel(module=module, tokenizer=tokenizer)


def word2vec(grams=None):
    rng = np.random.default_rng(0)
    table = rng.standard_normal((len(WORDS), 8)).astype(np.float32)
    buckets = rng.standard_normal((grams.buckets, 8)).astype(np.float32) if grams else None
    return WordModel(
        words=tuple(WORDS),
        vectors=table,
        counts=np.arange(len(WORDS), 0, -1),
        grams=grams,
        gram_vectors=buckets,
        lowercase=True,
    )


TAGS = ("O", "B-X", "I-X")
# name: how it is made, which functions it is asked, which files it is evaluated on
FOLDERS = {
    "bert_bare": (lambda: encoder(), ["embed"], ["similarity.tsv"]),
    "bert_mlm_nsp": (
        lambda: encoder("mlm", "nsp", dropout=0.1),
        ["embed", "fill", "classify_pairs"],
        ["text.txt"],
    ),
    "bert_untied_cased": (
        lambda: encoder(
            "mlm",
            tied=False,
            activation="gelu_new",
            tokenizer=Tokenizer.from_vocab(BERT_PIECES, lowercase=False),
        ),
        ["embed", "fill"],
        ["text.txt"],
    ),
    "bert_causal": (lambda: encoder("mlm", causal=True), ["suggest", "generate"], ["text.txt"]),
    "bert_sequence": (
        lambda: encoder("sequence"),
        ["embed", "classify", "classify_pairs"],
        ["labels.tsv"],
    ),
    "bert_token": (lambda: encoder("token", labels=TAGS), ["tag"], ["tags.conll"]),
    "bert_span": (lambda: encoder("span"), ["answer"], ["questions.jsonl"]),
    "bert_choice": (lambda: encoder("choice", labels=("no",)), ["choose"], ["choices.jsonl"]),
    "distilbert_mlm": (
        lambda: encoder("mlm", family="distilbert"),
        ["embed", "fill"],
        ["text.txt"],
    ),
    "distilbert_sequence": (
        lambda: encoder("sequence", family="distilbert", labels=("a", "no", "yes")),
        ["classify"],
        ["labels.tsv"],
    ),
    "modernbert_mlm": (lambda: modern("mlm"), ["embed", "fill"], ["text.txt"]),
    "modernbert_sequence_mean": (
        lambda: modern("sequence", pooling="mean", norm_bias=True, attention_bias=True),
        ["classify"],
        ["labels.tsv"],
    ),
    "finetuned_tag_context": (
        lambda: encoder(
            "token", labels=TAGS, task=Task(name="tag", policy="window", stride=4, context=True)
        ),
        ["tag"],
        ["tags.conll"],
    ),
    "finetuned_answer_threshold": (
        lambda: encoder(
            "span", task=Task(name="answer", policy="window", none=True, threshold=-0.6)
        ),
        ["answer"],
        ["questions.jsonl"],
    ),
    "finetuned_features_linear": (
        lambda: with_reader(
            "classify", ("no", "yes"), Features(width=16, layers="0,-1", pooling="mean")
        ),
        ["classify"],
        ["labels.tsv"],
    ),
    "finetuned_features_bilstm": (
        lambda: with_reader(
            "tag", TAGS, Features(width=8, layers="sum-all", kind="bilstm", hidden=6, depth=2)
        ),
        ["tag"],
        ["tags.conll"],
    ),
    "sentence_transformers": (
        lambda: encoder(
            pools=Pooling(
                modes=("cls", "mean"),
                normalize=True,
                limit=20,
                prompts={"query": "a question : "},
                default_prompt="query",
            )
        ),
        ["embed"],
        ["similarity.tsv"],
    ),
    "ngram": (ngram, ["suggest", "generate"], ["text.txt"]),
    "nnlm": (
        lambda: language("nnlm", order=4, embedding=6, hidden=10, direct=True),
        ["suggest", "generate"],
        ["text.txt"],
    ),
    "lstm": (
        lambda: language("lstm", width=8, layers=2, dropout=0.2),
        ["suggest", "generate"],
        ["text.txt"],
    ),
    "lstm_gru": (
        lambda: language("lstm", cell="gru", width=8, embedding=6, tied=False, layers=1),
        ["suggest", "generate"],
        ["text.txt"],
    ),
    "word2vec": (word2vec, ["similar"], ["pairs.csv"]),
    "word2vec_ngrams": (
        lambda: word2vec(Grams(shortest=3, longest=5, buckets=60)),
        ["similar"],
        ["pairs.csv"],
    ),
    "transformer_post": (transformer, ["translate"], ["source.txt", "target.txt"]),
    "transformer_pre_learned": (
        lambda: transformer(norm="pre", positions="learned", longest=48),
        ["translate"],
        ["source.txt", "target.txt"],
    ),
    "transformer_separate": (
        lambda: transformer(
            embeddings="separate", tied=False, positions="halves", decoder_layers=1
        ),
        ["translate"],
        ["source.txt", "target.txt"],
    ),
    "seq2seq_none": (
        lambda: seq2seq(attention="none", cell="lstm", layers=2, bidirectional=False),
        ["translate"],
        ["source.txt", "target.txt"],
    ),
    "seq2seq_bahdanau": (
        lambda: seq2seq(attention="bahdanau", cell="gru"),
        ["translate"],
        ["source.txt", "target.txt"],
    ),
    "seq2seq_luong": (
        lambda: seq2seq(attention="luong", cell="lstm", score="general"),
        ["translate"],
        ["source.txt", "target.txt"],
    ),
    "seq2seq_luong_concat": (
        lambda: seq2seq(attention="luong", score="concat", feeding=False, embeddings="separate"),
        ["translate"],
        ["source.txt", "target.txt"],
    ),
}


# Fixed batches.


def padded(rows, pad=0):
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])


def batch_of(model):
    """Inputs by name."""
    family = getattr(model, "config", model).family
    texts = INPUTS["texts"][:3]
    if family == "word2vec":
        words = INPUTS["words"] + (INPUTS["unseen"] if model.grams else [])
        return {"words": torch.tensor(list(" ".join(words).encode()), dtype=torch.uint8)}
    if family == "ngram":
        return {"input_ids": torch.tensor([BOS, *Vocabulary(model.tokenizer).ids(texts)[0], EOS])}
    if family in LANGUAGE_CONFIGS:
        rows = Vocabulary(model.tokenizer).ids(sentences(40, 9))
        return {"input_ids": torch.tensor([row[:6] for row in rows if len(row) > 6][:3])}
    if family in TRANSLATOR_CONFIGS:
        source = model.encode([text[:14] for text in (texts[0], texts[1][:9])])
        target = model.encode([text[:8] for text in texts[1:3]])
        least = min(map(len, target))
        return {
            "input_ids": padded(source),
            "attention_mask": padded([[1] * len(row) for row in source]),
            "decoder_input_ids": torch.tensor([row[:least] for row in target]),
        }
    pairs = [None, INPUTS["pairs"][0][1], None] if family == "bert" else [None] * 3
    made = [model.tokenizer.encode(a, b) for a, b in zip(texts, pairs, strict=True)]
    found = {
        "input_ids": padded([one.ids for one in made]),
        "attention_mask": padded([[1] * len(one.ids) for one in made]),
    }
    if family == "bert":
        found["token_type_ids"] = padded([one.type_ids for one in made])
    return found


def encodings(tokenizer):
    texts = [(text, None) for text in INPUTS["texts"]] + [tuple(INPUTS["pairs"][0])]
    made = [(text, pair, tokenizer.encode(text, pair)) for text, pair in texts]
    return [
        {
            "text": text,
            "pair": pair,
            "ids": one.ids,
            "offsets": [list(offset) for offset in one.offsets],
            "words": one.words,
            "type_ids": one.type_ids,
        }
        for text, pair, one in made
    ]


def describe(model, functions, files, tensors):
    """What expected.json says; results that are tensors go into `tensors`."""
    told = {}
    for name in functions:
        found = adapter.FUNCTIONS[name](model, INPUTS)
        if name == "embed":
            tensors |= {f"{name}.{part}": vectors for part, vectors in found.items()}
        told[name] = None if name == "embed" else found
    paths = [str(HERE / "data" / file) for file in files]
    return {
        "shape": adapter.shape_of(model),
        "labels": list(getattr(model, "labels", ())),
        "encodings": encodings(model.tokenizer) if hasattr(model, "tokenizer") else [],
        "functions": told,
        "evaluate": {"files": files, "scores": adapter.evaluate(model, paths)} if files else None,
    }


def write_expected(place, model, functions, files, inputs):
    tensors = {f"input.{name}": value for name, value in inputs.items()}
    if inputs:
        with torch.inference_mode():
            tensors |= adapter.module_outputs(model, inputs)
    told = describe(model, functions, files, tensors)
    save_file(
        {name: one.contiguous() for name, one in tensors.items()}, place / "expected.safetensors"
    )
    (place / "expected.json").write_text(json.dumps(told) + "\n", encoding="utf-8")


def main():
    torch.set_num_threads(1)
    write_data()
    for name, (make, functions, files) in FOLDERS.items():
        print(name)  # noqa: T201
        place = HERE / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        model = make()
        model.save(place / "model")
        opened = cloze.load(place / "model", device="cpu", quiet=True)
        write_expected(place, opened, functions, files, batch_of(opened))
    # the built-in model: its weights lie in the package, so only what it computes is kept
    place = HERE / "cloze_en"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    write_expected(place, cloze.load("cloze-en", device="cpu"), ["embed", "fill"], [], {})


if __name__ == "__main__":
    main()
