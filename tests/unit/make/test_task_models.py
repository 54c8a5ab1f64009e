"""Task models on features: a BiLSTM with word embeddings of its own, and pairs of texts."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import cloze
from cloze.checkpoint.word2vec import make_vector_model
from cloze.data.labelled.examples import TextExample
from cloze.errors import ConfigError, FolderError, InputError
from cloze.models.configs.bert import BertConfig
from cloze.models.word2vec import WordVectors
from cloze.nn.feature_heads import BiLSTMFeatureHead, FeatureInputs, ScalarMix, compare_pairs
from helpers import raises
from tunings import body, tagged, texts, tune

SMALL = ("transfer.kind=features", "transfer.hidden_size=8", "transfer.num_layers=1")
BILSTM = (*SMALL, "transfer.classifier=bilstm")


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    words = tuple("abcdefgh")
    return WordVectors(words=words, vectors=rng.normal(size=(8, 6)).astype(np.float32))


def mix_by_hand(mix, layers):
    weights = torch.exp(mix.scores) / torch.exp(mix.scores).sum()
    return mix.scale * sum(w * h for w, h in zip(weights, layers, strict=True))


@pytest.mark.parametrize("place", ["input", "output", "both", "none"])
@pytest.mark.parametrize("pooling", [None, "max", "mean"])
def test_a_bilstm_follows_the_paper(place, pooling):
    """Peters et al. 2018, §3.3: [x; ELMo] at the input, [h; ELMo] at the output."""
    inputs = FeatureInputs(
        mixed_layers=3, contextual=place, vocab_size=7, embedding_size=4, pooling=pooling
    )
    torch.manual_seed(0)
    head = BiLSTMFeatureHead(5, 2, hidden_size=6, num_layers=1, inputs=inputs).double().eval()
    for mix in (one for one in head.modules() if isinstance(one, ScalarMix)):
        nn.init.normal_(mix.scores)
        nn.init.constant_(mix.scale, 0.7)
    lengths, found = [3, 1, 4], []
    layers = torch.randn(3, sum(lengths), 5, dtype=torch.float64)
    words = torch.tensor([1, 2, 3, 0, 6, 5, 4, 1])
    start = 0
    for length in lengths:  # each sequence alone
        part = slice(start, start + length)
        x = [head.embeddings.weight[words[part]]]
        if place in ("input", "both"):
            x.append(mix_by_hand(head.mix, layers[:, part]))
        states = head.lstm(torch.cat(x, -1))[0]
        if place in ("output", "both"):
            states = torch.cat([states, mix_by_hand(head.output_mix, layers[:, part])], -1)
        if pooling:
            states = (states.amax(0) if pooling == "max" else states.mean(0))[None]
        found.append(head.dense(states))
        start += length
    concatenated = torch.cat(list(layers), -1)
    expected = torch.cat(found)
    torch.testing.assert_close(head(concatenated, lengths, words), expected, atol=1e-12, rtol=0)


def test_weights_and_scale_may_be_fixed():
    fixed = ScalarMix(3, learns_weights=False, learns_scale=False)
    assert not list(fixed.parameters())
    assert fixed.state_dict().keys() == ScalarMix(3).state_dict().keys()
    x = torch.randn(4, 3, 5)
    torch.testing.assert_close(fixed(x.flatten(1)), x.mean(1))


def test_pairs_are_compared():
    u, v = torch.randn(2, 3, 4)
    rows = torch.stack([u, v], 1).flatten(0, 1)
    expected = torch.cat([u, v, (u - v).abs(), u * v], -1)
    torch.testing.assert_close(compare_pairs(rows), expected)


@pytest.mark.parametrize("place", ["both", "none"])
def test_words_by_a_task_model(base, tmp_path, place):
    settings = [f"transfer.contextual={place}", "transfer.embedding_size=6", "run.batch_size=16"]
    if place != "none":
        settings += ['transfer.layers="scalar-mix"', "transfer.contextual_dropout=0.1"]
    dev = tagged(40, 1)
    data = {"task": "tag", "train": tagged(100), "dev": dev}
    settings.append("run.epochs=8")
    ended = tune(base, tmp_path / "m", *SMALL, "optimizer.lr=0.03", *settings, **data)
    assert ended.score > 0.8
    model = cloze.load(tmp_path / "m")
    assert model.task.features.contextual == place
    assert cloze.evaluate(model, dev).scores["f1"] == pytest.approx(ended.score)
    found = cloze.info(tmp_path / "m").features
    assert ("layer_weights" in found) == (place in ("input", "both"))
    assert ("output_layer_weights" in found) == (place in ("output", "both"))
    assert cloze.info(model).features == found


def test_words_by_a_linear_classifier(base, tmp_path):
    settings = ["transfer.tagger=linear", 'transfer.layers="1"', "transfer.l2_penalty=0.01"]
    dev = tagged(40, 1)
    data = {"task": "tag", "train": tagged(100), "dev": dev}
    ended = tune(base, tmp_path / "m", "transfer.kind=features", *settings, **data)
    assert ended.score > 0.9
    assert cloze.evaluate(tmp_path / "m", dev).scores["f1"] == pytest.approx(ended.score)
    text = dev[0].text
    one = cloze.embed(base, text, layers=1, pooling="none")
    logits = cloze.load(tmp_path / "m").feature_head.dense(torch.tensor(one.vectors))[1:-1]
    tags = [cloze.load(tmp_path / "m").labels[n] for n in logits.argmax(-1)]
    assert cloze.tag(tmp_path / "m", text).tags == tuple(tags)


def test_texts_by_a_bilstm(base, vectors, tmp_path):
    folder = make_vector_model(vectors).save(tmp_path / "vectors")
    settings = ["transfer.contextual=both", f'transfer.word_vectors="{folder}"', "run.epochs=5"]
    ended = tune(base, tmp_path / "m", *BILSTM, "optimizer.lr=0.02", *settings)
    assert ended.score > 0.9
    model = cloze.load(tmp_path / "m")
    spec = model.task.features
    assert (spec.embedding_size, spec.pooling) == (6, "max")
    assert set(vectors.words) <= set(model.feature_head.vocabulary)
    some = [one.text for one in texts(8)] + ["", "unknown words"]
    alone = [cloze.classify(model, text).score for text in some]
    together = [one.score for one in cloze.classify(model, some)]
    assert alone == pytest.approx(together, abs=1e-5)
    words = json.loads((tmp_path / "m" / "reader_words.json").read_text())
    (tmp_path / "m" / "reader_words.json").write_text(json.dumps(words[1:]))
    with raises(FolderError, "reader_words.json", fix="fine-tune again"):
        cloze.load(tmp_path / "m")


def test_embeddings_start_from_word_vectors(base, vectors, tmp_path):
    folder = make_vector_model(vectors).save(tmp_path / "vectors")
    settings = [f'transfer.word_vectors="{folder}"', "optimizer.lr=0", "optimizer.weight_decay=0"]
    tune(base, tmp_path / "m", *BILSTM, *settings, "run.steps=1")
    head = cloze.load(tmp_path / "m").feature_head
    for row, word in enumerate(head.vocabulary, 1):
        if word in vectors:
            np.testing.assert_array_equal(head.embeddings.weight[row].detach(), vectors[word])
    assert not head.embeddings.weight[0].any()


def test_a_stopped_run_of_a_task_model_is_resumed_exactly(base, tmp_path):
    settings = (*BILSTM, "transfer.embedding_size=4", "run.steps=6", "run.save_every=2")
    base.save(tmp_path / "base")
    rows = tmp_path / "rows.tsv"
    examples = texts(40)
    rows.write_text("text\tlabel\n" + "".join(f"{one.text}\t{one.label}\n" for one in examples))

    def stop(run, step):
        if step == 3:
            run.request_stop()

    class Stopper(cloze.Callback):
        def on_train_begin(self, run):
            self.run = run

        def on_step(self, metrics):
            stop(self.run, metrics["step"])

    options = {"settings": list(settings), "recipe": "features", "dev": rows, "progress": False}
    one, two = tmp_path / "one", tmp_path / "two"
    cloze.finetune("classify", tmp_path / "base", rows, one, **options)
    cloze.finetune("classify", tmp_path / "base", rows, two, callbacks=[Stopper()], **options)
    cloze.resume(two, progress=False)
    weights = [cloze.load(out).feature_head.state_dict() for out in (one, two)]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


def make_pairs(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        one = " ".join(rng.choice(list("abcdefgh"), 4))
        same = bool(rng.integers(2))
        other = one if same else " ".join(rng.choice(list("abcdefgh"), 4))
        rows.append(TextExample(text=one, pair=other, label="same" if same else "other"))
    return rows


@pytest.mark.parametrize("classifier", ["linear", "cnn", "bilstm"])
def test_pairs_of_a_source_without_pairs(vectors, tmp_path, classifier):
    source, rows = make_vector_model(vectors), make_pairs(120)
    settings = {"transfer.hidden_size": 8, "transfer.num_layers": 1, "transfer.l2_penalty": 0.01}
    options = {} if classifier == "linear" else {"epochs": 8, "lr": 2e-2}
    ended = cloze.finetune(
        *("classify", source, rows, tmp_path / "m"),
        recipe="features",
        dev=rows,
        classifier=classifier,
        settings=settings,
        progress=False,
        **options,
    )
    assert ended.score > 0.75
    model = cloze.load(tmp_path / "m")
    assert json.loads((tmp_path / "m" / "cloze.json").read_text())["features"]["compares_pairs"]
    scores = cloze.evaluate(model, rows, swap=True)
    assert scores.scores["accuracy"] == pytest.approx(ended.score)
    if classifier == "linear":
        u, v = (
            cloze.embed(source, [getattr(one, name) for one in rows]) for name in ("text", "pair")
        )
        features = torch.tensor(np.concatenate([u, v, abs(u - v), u * v], -1))
        expected = model.feature_head.dense(features).softmax(-1)[:, 1].tolist()
        found = cloze.classify(model, [one.text for one in rows], [one.pair for one in rows])
        assert [one.scores["same"] for one in found] == pytest.approx(expected, abs=1e-5)
    with raises(InputError, "single text", fix="pair"):
        cloze.classify(model, "a b c")
    with raises(InputError, "window", fix="head"):
        cloze.classify(model, "a", "b", truncation="window")


def test_bert_reads_pairs_as_one_sequence_unless_told_otherwise(base, tmp_path):
    rows = make_pairs(60)
    for choice, compares in ((None, False), ("compared", True)):
        setting = [] if choice is None else [f"transfer.pairs={choice}"]
        out = tmp_path / str(choice)
        tune(base, out, "transfer.kind=features", *setting, train=rows, dev=rows)
        assert cloze.load(out).task.features.compares_pairs is compares
    mixed = [*rows, replace(rows[0], pair=None)]
    with raises(InputError, "single text", fix="joint"):
        tune(base, tmp_path / "x", "transfer.kind=features", *setting, train=mixed, dev=rows)


@pytest.mark.parametrize(
    ("settings", "names", "fix"),
    [
        (["transfer.contextual=output"], ("contextual",), "--transfer features"),
        (["transfer.kind=features", "transfer.embedding_size=4"], ("embedding_size",), "bilstm"),
        ([*BILSTM, "transfer.contextual=none"], ("none", "embeddings"), "--word-vectors"),
        ([*BILSTM, "transfer.pooling=cls"], ("cls", "bilstm"), "max"),
    ],
)
def test_settings_that_do_not_fit(base, tmp_path, settings, names, fix):
    with raises(ConfigError, *names, fix=fix):
        tune(base, tmp_path / "m", *settings)


def test_word_vectors_must_be_word_vectors(base, tmp_path):
    base.save(tmp_path / "bert")
    with raises(ConfigError, "word_vectors", "BERT", fix="word2vec"):
        tune(base, tmp_path / "m", *BILSTM, f'transfer.word_vectors="{tmp_path / "bert"}"')
