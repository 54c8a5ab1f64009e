"""Contrastive training from data to a folder of sentence-transformers."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import TextExample
from cloze.data.text_pairs import load_text_pairs
from cloze.errors import ConfigError, InputError
from cloze.interop.sentence_transformers import Pooling
from cloze.make.finetune.epoch_order import EpochOrder
from cloze.make.finetune.hard_negatives import mine_negatives
from cloze.make.recipe.embedding import EmbeddingRun
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.gpt import GPT2Config
from helpers import Watch, raises, tiny_tokenizer
from tunings import metrics, weights

SETTINGS = ["run.device=cpu", "run.log_every=1", "run.part_tokens=64", "optimizer.lr=5e-3"]


def base(heads=("mlm",), kind=BertConfig, **options) -> Model:
    tokenizer = tiny_tokenizer()
    shape = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 32}
    shape |= {"max_positions": 32, "init_std": 0.1} | options
    config = kind(vocab_size=tokenizer.vocab_size, **shape)
    return Model.from_config(config, tokenizer, heads, rng=torch.Generator().manual_seed(0))


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """The positive has other letters, which the model must learn to connect."""
    rng = np.random.default_rng(seed)
    found = [rng.choice(list("abcd"), rng.integers(2, 6)) for _ in range(count)]
    other = dict(zip("abcd", "efgh", strict=True))
    return [(" ".join(one), " ".join(other[letter] for letter in one[::-1])) for one in found]


def scored(count: int, seed: int = 0) -> list[tuple[str, str, float]]:
    """The score says whether the second text is the positive of the first."""
    rng = np.random.default_rng(seed)
    made = pairs(count, seed)
    found = []
    for anchor, positive in made:
        other = made[rng.integers(count)][1]
        found.append((anchor, other, float(other == positive)))
        found.append((anchor, positive, 1.0))
    return found


def tune(out, data, *settings, model=None, **options):
    return cloze.finetune(
        "embed",
        model or base(),
        data,
        out,
        settings=[*SETTINGS, *settings],
        progress=False,
        **{"batch_size": 16, "steps": 32, **options},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("embed") / "run"
    watch = Watch()
    result = tune(
        out, pairs(150), "run.eval_every=16", mlm_weight=0.2, hard_negatives=2, callbacks=[watch]
    )
    return out, result


def test_pairs_are_found_after_training(trained):
    out, result = trained
    assert result.task == "embed"
    assert result.metric == "mrr"
    assert result.score > result.scores["initial_mrr"] + 0.1
    assert {"mrr", "accuracy", "recall_at_10"} < {*result.scores}
    rows = [row for row in metrics(out) if row["kind"] == "train"]
    assert {"embed_loss", "mlm_loss", "mlm_accuracy", "accuracy"} < {*rows[0]}
    assert rows[-1]["embed_loss"] < rows[0]["embed_loss"]
    assert json.loads((out / "data.json").read_text())["training"] == 132
    assert "Nearest neighbours" in (out / "report.html").read_text()


def test_the_folder_fills_and_embeds(trained):
    out, _ = trained
    model = cloze.load(out)
    assert model.pooling == Pooling(normalize=True, max_seq_length=32)
    assert model.config.dropout == base().config.dropout
    assert {"fill", "embed", "similarity", "rerank"} <= {*model.capabilities}
    vectors = cloze.embed(model, ["a b c", "d d"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1], abs=1e-5)
    found = cloze.evaluate(
        model, [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in scored(30)]
    )
    assert found.kind == "similarity"


def test_the_masked_lm_is_evaluated_on_text(trained, tmp_path):
    out, _ = trained
    text = tmp_path / "text.txt"
    text.write_text("the cat sat . a b c d e f\n" * 20)
    assert cloze.evaluate(out, text).kind == "masked"
    for others in (base(), cloze.load(out)):  # neither has masked tokens in common with it
        with raises(InputError, "masked", fix="--pair-column"):
            cloze.compare({"one": others, "two": cloze.load(out)}, text)


def test_folders_with_a_masked_lm_are_compared_on_pairs(trained):
    out, _ = trained
    rows = [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in scored(30)]
    examples = [TextExample(text=a, pair=b, label=s) for a, b, s in scored(30)]
    found = [
        cloze.compare({"one": base(), "two": cloze.load(out)}, data, resamples=2)
        for data in (rows, examples)
    ]
    one, two = ([entry.evaluation.scores for entry in each.entries] for each in found)
    assert one == two
    assert cloze.evaluate(out, examples).scores == cloze.evaluate(out, rows).scores


def test_resuming_is_exact(tmp_path):
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{a}\t{b}\n" for a, b in pairs(60)))
    folder = base().save(tmp_path / "base")
    options = {"model": folder, "steps": 9, "hard_negatives": 1, "mlm_weight": 0.1, "dropout": 0.2}
    settings = ("run.eval_every=4", "data.mine_every=1")
    tune(tmp_path / "whole", [data], *settings, **options)

    class Stop(cloze.Callback):
        def on_train_begin(self, run):
            self.run = run

        def on_step(self, row):
            if row["step"] == 5:
                self.run.request_stop()

    part = tune(tmp_path / "part", [data], *settings, callbacks=[Stop()], **options)
    assert part.steps == 5
    result = cloze.resume(tmp_path / "part", progress=False)
    assert result.steps == 9
    one, other = (weights(cloze.load(tmp_path / name)) for name in ("whole", "part"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    losses = [
        [row["loss"] for row in metrics(tmp_path / name) if row["kind"] == "train"]
        for name in ("whole", "part")
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("loss", ["cosent", "cosine"])
def test_scored_pairs(tmp_path, loss):
    result = tune(
        tmp_path / "run",
        scored(100),
        "run.eval_every=16",
        model=base(()),
        loss=loss,
        dev=scored(30, seed=5),
        pooling="cls",
        normalize=False,
    )
    assert result.metric == "spearman"
    losses = [row["loss"] for row in metrics(tmp_path / "run") if row["kind"] == "train"]
    assert np.mean(losses[-8:]) < np.mean(losses[:8])
    model = cloze.load(tmp_path / "run")
    assert model.pooling == Pooling(modes=("cls",), max_seq_length=32)
    assert "fill" not in model.capabilities


def test_matryoshka_and_symmetric(tmp_path):
    options = {"matryoshka": "16,8:0.5", "symmetric": True, "steps": 4}
    result = tune(tmp_path / "run", pairs(60), dev=pairs(20, seed=3), **options)
    assert result.steps == 4


def test_raw_text_is_trained_with_two_dropout_masks(tmp_path):
    text = tmp_path / "text.txt"
    lines = [" ".join("abcd"[n % 4] + " " for n in range(k, k + 5)) + "." for k in range(40)]
    text.write_text("\n\n".join(f"a b c d e {n % 7} {line}" for n, line in enumerate(lines)))
    model = base(dropout=0.0, attention_dropout=0.0)
    tune(tmp_path / "run", [text], model=model, steps=3)
    with raises(ConfigError, "dropout", fix="--dropout"):
        tune(tmp_path / "other", [text], model=model, steps=3, dropout=0.0)


def test_a_retrieval_set_selects_the_model(tmp_path):
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    made = pairs(30, seed=2)
    documents = [{"_id": f"d{n}", "text": b} for n, (_, b) in enumerate(made)]
    queries = [{"_id": f"q{n}", "text": a} for n, (a, _) in enumerate(made)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(30))
    (folder / "qrels" / "test.tsv").write_text(qrels)
    result = tune(tmp_path / "run", pairs(100), "run.eval_every=16", retrieval=folder)
    assert result.metric == "ndcg_at_10"
    assert result.score > result.scores["initial_ndcg_at_10"]


def test_hard_negatives_are_similar_but_not_positives():
    found = load_text_pairs([("a", "p"), ("a", "q"), ("b", "r"), ("c", "s")])
    vectors = {
        "a": [1, 0], "p": [1, 0.1], "q": [1, 0.2], "b": [0, 1], "r": [0.3, 1], "c": [1, 1],
        "s": [0.99, 0.3],
    }  # fmt: skip

    def embed(texts):
        given = np.array([vectors[text] for text in texts], np.float32)
        return given / np.linalg.norm(given, axis=1, keepdims=True)

    mined = mine_negatives(found, embed, count=2, margin=0.02)
    names = [[found.texts[n] if n >= 0 else None for n in row] for row in mined]
    # s is nearly as similar to a as p is, and q and p are positives of the same anchor
    assert names[0] == ["s", "r"]
    assert names[2] == ["s", "q"]
    strict = mine_negatives(found, embed, count=2, margin=0.1)
    assert [found.texts[n] for n in strict[0] if n >= 0] == ["r"]


def test_settings_that_do_not_fit(tmp_path):
    out = tmp_path / "run"
    with raises(ConfigError, "cosent", fix="multiple-negatives"):
        tune(out, pairs(40), loss="cosent")
    with raises(ConfigError, "scores", fix="cosent"):
        tune(out, scored(40), loss="multiple-negatives")
    with raises(ConfigError, "masked-LM", fix="--mlm-weight"):
        tune(out, pairs(40), model=base(()), mlm_weight=0.1)
    with raises(ConfigError, "matryoshka", fix="16"):
        tune(out, pairs(40), matryoshka="32,16")
    with raises(ConfigError, "matryoshka"):
        tune(out, pairs(40), matryoshka="8,wide")
    with raises(ConfigError, "max_length", fix="32"):
        tune(out, pairs(40), max_length=64)
    with raises(InputError, "cls"):
        causal = base(("lm",), GPT2Config)
        tune(out, pairs(40), model=causal, pooling="cls")
    with raises(ConfigError, "make_pairs"):
        tune(out, pairs(40), make_pairs=["title"], pair_column="b")
    assert not out.exists()


def test_the_base_model_is_not_changed(tmp_path):
    model = base()
    before = {name: weight.clone() for name, weight in weights(model).items()}
    tune(tmp_path / "run", pairs(40), model=replace(model), steps=2)
    assert all(torch.equal(weight, before[name]) for name, weight in weights(model).items())


@given(
    groups=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    size=st.integers(1, 9),
    epoch=st.integers(0, 2),
)
def test_batches_of_one_kind(groups, size, epoch):
    run = EmbeddingRun(batch_size=size, steps=1)
    order = EpochOrder(len(groups), run, groups=np.array(groups))
    batches = [order.indices(epoch * order.per_epoch + n) for n in range(order.per_epoch)]
    assert sorted(n for batch in batches for n in batch) == list(range(len(groups)))
    for batch in batches:
        assert 0 < len(batch) <= size
        assert len({groups[n] for n in batch}) == 1
    assert order.per_epoch == sum(-(-groups.count(name) // size) for name in {*groups})


def test_kinds_of_pairs_are_trained_in_batches_of_their_own(tmp_path):
    text = tmp_path / "text.txt"
    document = (
        "a title\nthe cat sat on the mat . a b c d e f g h\nthe cat ran . e f g h a b c d\n\n"
    )
    text.write_text(document * 12)
    options = {"make_pairs": ["title", "random-spans"], "batch_by_kind": True, "steps": 4}
    result = tune(tmp_path / "out", [text], "data.hold_out=0.1", **options)
    assert result.steps == 4


@given(
    documents=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    together=st.integers(2, 5),
    epoch=st.integers(0, 2),
)
def test_pairs_of_a_document_are_together(documents, together, epoch):
    count = len(documents)
    run = EmbeddingRun(batch_size=count, steps=1)
    order = EpochOrder(count, run, documents=np.array(documents), together=together)
    indices = order.indices(epoch)
    assert sorted(indices) == list(range(count))
    changes = 1 + sum(documents[a] != documents[b] for a, b in pairwise(indices))
    assert changes <= sum(-(-documents.count(one) // together) for one in {*documents})


def test_documents_of_made_pairs_are_trained_together(tmp_path):
    text = tmp_path / "text.txt"
    words = [f"w{n}" for n in range(12)]
    paragraphs = [f"{' '.join(words)} {n}" for n in range(36)]
    documents = [[f"title {n}", *paragraphs[4 * n : 4 * n + 4]] for n in range(9)]
    text.write_text("\n\n".join("\n".join(one) for one in documents))
    options = {"make_pairs": ["title", "random-spans"], "batch_by_kind": True, "steps": 3}
    result = tune(tmp_path / "out", [text], "data.same_document_pairs=4", **options)
    assert result.steps == 3
    with raises(ConfigError, "same_document_pairs", fix="--make-pairs"):
        tune(tmp_path / "other", pairs(40), "data.same_document_pairs=4", steps=2)
