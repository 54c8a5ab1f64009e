"""`evaluate` and `compare` of pre-trained encoders."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.data.corpus import Corpus
from cloze.data.labelled.examples import Origin, TextExample
from cloze.decode.language import language_model
from cloze.errors import ConfigError, InputError, TruncationWarning
from cloze.interop.sentence_transformers import Pooling
from cloze.make.pretrain.dispatch import pretrain
from cloze.metrics.regression import pearson, spearman
from grams import text_model
from helpers import raises, tiny_model
from smallruns import SMALL, stories

STORIES = "the cat sat. a b c d.\ne f g h.\n\nthe cats sat, a b.\ni j.\n\na a b c d e. d e.\n" * 3
PAIRS = [("the cat", "the cats", 4.5), ("a b", "c d", 1.0), ("sat.", "the sat.", 3.0)]
PAIRS += [("a b c", "a b", 3.5), ("cat", "d e f g", 0.5)]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "held.txt"
    path.write_text(STORIES)
    return path


@pytest.fixture
def scored(tmp_path):
    """As STS-B has it."""
    path = tmp_path / "dev.tsv"
    rows = [("sentence1", "sentence2", "score"), *PAIRS]
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return path


def causal(positions=24):
    return tiny_model("mlm", positions=positions, is_causal=True)


# hidden words


def test_hidden_words_of_running_text(text, tmp_path):
    told = []
    made = cloze.evaluate(tiny_model("mlm"), text, progress=lambda *said: told.append(said))
    assert made.kind == "masked"
    assert list(made.scores) == ["mlm_accuracy", "unigram_baseline", "mlm_loss", "perplexity"]
    assert made.scores["perplexity"] == pytest.approx(math.exp(made.scores["mlm_loss"]))
    assert 0 < made.scores["unigram_baseline"] < 1
    assert (made.counts["documents"], made.notes["max_length"]) == (7, "24")
    assert told[-1] == ("samples", made.counts["samples"], made.counts["samples"])
    assert "MLM accuracy" in made.save(tmp_path / "page.html").read_text()
    again = cloze.evaluate(tiny_model("mlm"), text, batch_tokens=24)  # other batches, same masks
    assert again.counts == made.counts
    assert again.scores == pytest.approx(made.scores, rel=1e-5)
    assert cloze.evaluate(tiny_model("mlm"), text, max_length=12).counts["samples"] > 10


@pytest.mark.parametrize("pairs", ["none", "nsp"])
def test_a_run_judges_itself_in_the_same_way(pairs, tmp_path):
    source, out = stories(tmp_path), tmp_path / "run"
    ended = pretrain(source, out, "laptop", settings=[*SMALL, f"sampling.pairs={pairs}"])
    documents = source.read_text().split("\n\n")
    kept = [documents[number] for number in Corpus.open(out / "corpus").held_out.document_ids]
    held = tmp_path / "held.txt"
    held.write_text("\n\n".join(kept))
    scores = dict(cloze.evaluate(cloze.load(out, quiet=True), held, max_length=32).scores)
    del scores["unigram_baseline"]  # here of this text, there of the text that was learned
    assert len(scores) == (3 if pairs == "none" else 6)
    assert scores == pytest.approx({name: ended.scores[name] for name in scores}, rel=1e-5)


def test_next_sentences_beside_the_commoner_answer(text, tmp_path):
    model = tiny_model("mlm", "nsp")
    made = cloze.evaluate(model, text)
    assert list(made.scores)[-3:] == ["nsp_accuracy", "majority_baseline", "nsp_loss"]
    assert 0.5 <= made.scores["majority_baseline"] <= 1
    alone = tmp_path / "alone.txt"
    alone.write_text("the cat sat.\na b c d.\n")  # no other document to take a wrong pair from
    assert not any("nsp" in name for name in cloze.evaluate(model, alone).scores)


def test_what_cannot_be_asked_of_running_text(text, scored, tmp_path):
    model = tiny_model("mlm")
    with raises(InputError, "swap", "masked") as error:
        cloze.evaluate(model, text, swap=True)
    assert "max_length, text_column, skip_bad, batch_tokens" in error.value.fix
    for length in (7, 25):
        with raises(ConfigError, "length", length, fix=("8", "24")):
            cloze.evaluate(model, text, max_length=length)
    with raises(InputError, "score", fix="text_column="):
        cloze.evaluate(model, scored)
    assert cloze.evaluate(model, scored, text_column="sentence1").counts["documents"] == len(PAIRS)
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    with raises(InputError, "text"):
        cloze.evaluate(model, empty)
    with raises(InputError, "max_length", "language model"):
        cloze.evaluate(text_model(2), text, max_length=12)


def test_rows_that_cannot_be_read_are_listed(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": "the cat sat. a b c."}\nno JSON\n')
    with raises(InputError, "text.jsonl:2"):
        cloze.evaluate(tiny_model("mlm"), path)
    made = cloze.evaluate(tiny_model("mlm"), path, skip_bad=True)
    assert [error.problem for error in made.skipped] == made.to_dict()["skipped"]
    assert "text.jsonl:2" in made.to_dict()["skipped"][0]


# causal


def test_left_to_right_is_scored_as_a_language_model(text):
    model = causal()
    made = cloze.evaluate(model, text)
    assert made.kind == "language"
    lines = [line for line in STORIES.splitlines() if line]
    log_p, tokens = 0.0, 0
    for line in lines:
        ids = torch.tensor([model.tokenizer.encode(line).ids])
        with torch.no_grad():
            scores = model.module.logits("mlm", model.module(ids)).log_softmax(-1)
        log_p += float(scores[0, :-1].gather(-1, ids[0, 1:, None]).sum())
        tokens += ids.shape[1] - 1
    assert made.counts["tokens"] == tokens
    assert made.scores["perplexity"] == pytest.approx(math.exp(-log_p / tokens), rel=1e-5)
    size = sum(len(line.encode()) + 1 for line in lines)
    assert made.scores["bits_per_byte"] == pytest.approx(-log_p / math.log(2) / size, rel=1e-5)


@pytest.mark.parametrize("limit", [2, 3, 5, 8])
def test_every_token_of_a_long_text_is_told_once(limit):
    language = language_model(causal(positions=limit))
    sequences = language.encode_texts(["a b c d e f g h i j", "cat", "the cat sat."])
    found = list(language.log_probs(sequences))
    assert [len(one) for one in found] == [len(ids) - 1 for ids in sequences]
    for ids, logs in zip(sequences, found, strict=True):
        for place in range(1, len(ids)):
            told = [
                window[: at + 1]
                for window, new in language._split_windows(ids)
                for at in range(new, len(window))
            ]
            context = torch.tensor([told[place - 1]])
            assert int(context[0, -1]) == ids[place]
            with torch.no_grad():
                module = language.model.module
                scores = module.logits("mlm", module(context[:, :-1])).log_softmax(-1)
            assert logs[place - 1] == pytest.approx(float(scores[0, -1, ids[place]]), abs=1e-5)


def test_left_to_right_beside_other_language_models(text):
    made = cloze.compare({"grams": text_model(2), "bert": causal()}, text)
    assert [one.kind for one in made.entries] == ["ngram", "bert, causal"]
    alone = cloze.evaluate(causal(), text).scores["bits_per_byte"]
    assert made.entries[1].score.bits_per_byte == alone
    with raises(InputError, "language model"):
        cloze.compare({"bert": causal(), "m": tiny_model("mlm")}, text)


# likeness


def cosines(model):
    a, b = (cloze.embed(model, [pair[n] for pair in PAIRS]).astype(float) for n in (0, 1))
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.mark.parametrize(
    "pooling",
    [None, Pooling(modes=("max",), prompts={"it": "the "}, default_prompt="it", normalize=True)],
)
def test_the_cosine_of_its_own_vectors_on_scored_pairs(pooling, scored, tmp_path):
    model = replace(tiny_model(), pooling=pooling)
    made = cloze.evaluate(model, scored)
    gold, said = [pair[2] for pair in PAIRS], cosines(model)
    assert [one.score for one in made.predictions] == pytest.approx(said, abs=1e-6)
    assert (made.kind, made.metric, made.count) == ("similarity", "spearman", len(PAIRS))
    wanted = {"spearman": spearman(gold, said), "pearson": pearson(gold, said)}
    assert made.scores == pytest.approx(wanted, abs=1e-6)
    worst = made.worst_errors()
    assert [one.severity for one in worst] == sorted((one.severity for one in worst), reverse=True)
    assert made.severity == "difference of ranks"
    assert "Spearman" in made.save(tmp_path / "page.html").read_text()


def test_a_head_for_words_gives_vectors_where_pairs_are_named(scored):
    made = cloze.evaluate(tiny_model("mlm"), scored, label_column="score")
    assert (
        made.scores
        == cloze.evaluate(tiny_model("mlm"), scored, pair_column=2, text_column=1).scores
    )
    assert made.kind == "similarity"


def test_what_is_no_scored_pair(text, tmp_path):
    model = tiny_model()
    with raises(InputError, "held.txt:1"):
        cloze.evaluate(model, text)
    path = tmp_path / "some.tsv"
    path.write_text("the cat\tthe cats\t4.5\na b\tc d\tgood\na\tb\t1.5\ncat\tsat\t2\n")
    with raises(InputError, "some.tsv:2"):
        cloze.evaluate(model, path)
    made = cloze.evaluate(model, path, skip_bad=True)
    assert (made.count, len(made.skipped)) == (3, 1)
    with raises(InputError, "max_length", "embedding"):
        cloze.evaluate(model, path, max_length=12)
    named = [TextExample(text="a", pair="b", label="yes", origin=Origin(file="f", line=3))]
    with raises(InputError, "f:3", "yes"):
        cloze.evaluate(model, named)


def test_a_text_too_long_for_its_vector(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"cat\tsat\t1.5\ncat\t{'a ' * 40}\t2\na\tb\t0.5\n")
    with raises(InputError, "pairs.tsv:2"):
        cloze.evaluate(tiny_model(), path, truncation="error")
    made = cloze.evaluate(tiny_model(), path, truncation="error", skip_bad=True)
    assert (made.count, len(made.skipped), made.num_truncated) == (2, 1, 0)
    cut = cloze.evaluate(tiny_model(), path, truncation="head")
    assert (cut.count, cut.num_truncated) == (3, 1)
    with pytest.warns(TruncationWarning, match="1 of 3 examples"):
        assert cloze.evaluate(tiny_model(), path).scores == cut.scores


def test_vectors_side_by_side(scored):
    models = {"one": tiny_model(), "two": replace(tiny_model("mlm"), pooling=None)}
    made = cloze.compare(models, scored, resamples=50)
    assert made.metric == "spearman"
    for entry in made.entries:
        alone = cloze.evaluate(models[entry.name], scored, label_column="score")
        assert entry.intervals["pearson"].value == alone.scores["pearson"]
    assert made.entries[1].difference is not None
    with raises(InputError, "compare"):
        cloze.compare({"a": tiny_model("mlm"), "b": tiny_model("mlm")}, scored)
    with raises(InputError, "chinese", "embedding"):
        cloze.compare(models, scored, chinese=True)
    tagger = tiny_model("sequence")
    with raises(InputError, "one", "embedding", fix="task"):
        cloze.compare({"one": tiny_model(), "two": tagger}, scored)
