"""Learning a neural language model: text to a folder, resumed exactly."""

import json

import numpy as np
import pytest
import torch

import cloze
from cloze.decode.language import language_model
from cloze.errors import ConfigError, InputError
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.language_models import LanguageModelRun
from cloze.make.resume import resume
from cloze.metrics.perplexity import score_language_model
from grams import TEXT
from helpers import Watch, raises

TINY = {
    "nnlm": [
        "model.order=3",
        "model.embedding_size=8",
        "model.hidden_size=12",
        "run.batch_size=16",
    ],
    "lstm": ["model.hidden_size=12", "run.batch_size=4", "run.bptt_length=5"],
    "elmo": [
        "model.filter_widths=[1, 2]",
        "model.filter_counts=[6, 8]",
        "model.projection_size=8",
        "model.cell_size=12",
        "model.num_candidates=8",
        "run.batch_size=4",
        "run.bptt_length=8",
    ],
}
AWD = [
    "model.embedding_size=6",
    "model.num_layers=3",
    "model.weight_dropout=0.5",
    "model.embedding_dropout=0.1",
    "model.input_dropout=0.4",
    "optimizer.name=sgd",
    "optimizer.lr=1.0",
    "run.variable_length=true",
    "run.activation_penalty=2",
    "run.temporal_penalty=1",
    "run.average_patience=1",
    "run.eval_every=1",
    "schedule.shape=constant",
]
RUN = ["vocabulary.kind=spaced", "run.log_every=1", "optimizer.lr=0.01"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{line}\n" for line in TEXT * 4), encoding="utf-8")
    return path


def trained(text, out, kind, *settings, **options):
    return pretrain(text, out, kind, settings=[*TINY[kind], *RUN, *settings], **options)


@pytest.mark.parametrize("kind", TINY)
def test_text_becomes_a_model_that_knows_it(kind, text, tmp_path):
    said = []
    watch = [Watch(log=said.append)]
    ended = trained(
        text,
        tmp_path / "run",
        kind,
        "run.epochs=12",
        "model.dropout=0.0",
        f'data.dev=["{text}"]',
        callbacks=watch,
    )
    assert "tokens, 13 words" in said[0]
    model = cloze.load(tmp_path / "run", device="cpu")
    assert model.config.family == kind
    found = score_language_model(language_model(model), TEXT * 4)
    assert found.perplexity == pytest.approx(ended.scores["perplexity"], rel=1e-4)
    assert found.perplexity < 7  # of twelve words, by their frequency alone 9
    metrics = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in metrics.splitlines()]
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.3
    assert "lm_accuracy" in rows[0]
    assert min(row["perplexity"] for row in rows if row["kind"] == "eval") == pytest.approx(
        ended.scores["perplexity"]
    )
    data = json.loads((tmp_path / "run/data.json").read_text())
    assert (data["lines"], data["held_out_lines"], data["unknown"]) == (48, 48, 0)
    assert (tmp_path / "run/report.html").is_file()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_output_bias_starts_with_word_frequencies_but_not_for_sgd(optimizer, text, tmp_path):
    still = ("optimizer.lr=1e-12", "run.steps=1", f"optimizer.name={optimizer}")
    trained(text, tmp_path / "run", "lstm", *still)
    model = cloze.load(tmp_path / "run", device="cpu")
    words = [n for n in range(model.config.vocab_size) if n != model.config.bos_id]
    bias = model.module.bias.detach()[words]
    starts_at_zero = bool((bias.abs() < 1e-6).all())
    assert starts_at_zero == (optimizer == "sgd")
    assert starts_at_zero or bias.exp().sum() == pytest.approx(1, abs=0.01)


def test_a_run_is_judged_as_the_model_is_scored_later(tmp_path):
    lines = TEXT * 90  # more than are computed at once, and an LSTM reads them as one text
    judged = tmp_path / "dev.txt"
    judged.write_text("\n".join(lines), encoding="utf-8")
    dev = f'data.dev=["{judged}"]'
    ended = trained([TEXT], tmp_path / "run", "lstm", "run.steps=2", dev)
    found = score_language_model(language_model(cloze.load(tmp_path / "run", device="cpu")), lines)
    assert found.texts == len(lines) > 1000
    assert found.perplexity == pytest.approx(ended.scores["perplexity"], rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("nnlm", []),
        ("lstm", []),
        ("lstm", ["model.cell=gru"]),
        ("lstm", AWD),
        ("elmo", []),
        ("elmo", ["model.output=cnn", "model.carry_state=true"]),
    ],
)
def test_a_run_that_stopped_goes_on_exactly(kind, own, text, tmp_path):
    settings = ("run.steps=9", "run.save_every=1", "model.dropout=0.3", *own)
    straight = trained(text, tmp_path / "straight", kind, *settings)
    kill = [Watch(stop_at=4)]
    trained(text, tmp_path / "cut", kind, *settings, callbacks=kill)
    resumed = resume(tmp_path / "cut")
    assert (straight.steps, resumed.steps) == (9, 9)
    assert resumed.scores == straight.scores
    one, other = (
        cloze.load(tmp_path / name, device="cpu").module.state_dict()
        for name in ("straight", "cut")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_last_lines_are_held_out_and_minutes_are_judged_at_their_end(text, tmp_path):
    ended = trained(
        *(text, tmp_path / "run", "nnlm", "run.minutes=0.003"),
        *("run.evals_per_epoch=0.001", "data.hold_out=0.25"),
    )
    assert ended.scores["perplexity"] > 1
    data = json.loads((tmp_path / "run/data.json").read_text())
    assert (data["lines"], data["held_out_lines"]) == (36, 12)


def test_without_held_out_lines_the_last_model_is_kept(text, tmp_path):
    ended = trained(text, tmp_path / "run", "lstm", "run.steps=2", "data.hold_out=0.0")
    assert ended.scores == {}
    assert cloze.load(tmp_path / "run").config.hidden_size == 12


def test_half_precision_and_a_vocabulary_that_is_there(text, tmp_path):
    trained(text, tmp_path / "first", "lstm", "run.steps=1")
    settings = ("run.steps=3", "run.dtype=bf16", f'vocabulary.folder="{tmp_path / "first"}"')
    ended = trained(text, tmp_path / "second", "lstm", *settings)
    assert ended.steps == 3
    first, second = (
        language_model(cloze.load(tmp_path / name)).vocabulary for name in ("first", "second")
    )
    assert first == second


def test_subwords(text, tmp_path):
    settings = ("vocabulary.kind=bpe", "vocabulary.size=270", "run.steps=2")
    trained(text, tmp_path / "run", "nnlm", *settings)
    found = score_language_model(language_model(cloze.load(tmp_path / "run")), ["a new zebra"])
    assert found.unknown == 0
    assert found.tokens > found.words


def test_texts_in_python_must_be_given_again(tmp_path):
    kill = [Watch(stop_at=1)]
    settings = ("run.steps=2", "run.save_every=1")
    trained([TEXT], tmp_path / "run", "nnlm", *settings, callbacks=kill)
    with raises(InputError, "pipe", "Python", fix="cloze.resume(out, sources=…)"):
        cloze.resume(tmp_path / "run")
    assert cloze.resume(tmp_path / "run", sources=[TEXT]).steps == 2


def test_what_a_user_can_get_wrong(text, tmp_path):
    with raises(InputError, "text"):
        trained([], tmp_path / "run", "nnlm", "run.steps=1")
    (tmp_path / "empty.txt").write_text("\n\n")
    with raises(InputError, "text"):
        trained(tmp_path / "empty.txt", tmp_path / "run", "nnlm", "run.steps=1")
    assert not (tmp_path / "run").exists()
    with raises(ConfigError, "budget"):
        LanguageModelRun().budget(3)
    with raises(ConfigError, "hold_out", "1.0"):
        trained(text, tmp_path / "run", "nnlm", "data.hold_out=1.0")


def test_the_recipe_of_awd_lstm_averages_weights_and_keeps_the_average(text, tmp_path):
    settings = [
        *TINY["lstm"],
        *("model.embedding_size=6", "vocabulary.kind=spaced", "run.epochs=14", "optimizer.lr=4"),
        *("run.average_patience=1", "run.log_every=1", f'data.dev=["{text}"]'),
    ]
    ended = pretrain(text, tmp_path / "run", recipe="awd-lstm", settings=settings)
    lines = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    averaged = [row["is_averaged"] for row in rows if row["kind"] == "eval"]
    assert averaged[0] == 0
    assert averaged == sorted(averaged)
    assert averaged[-1] == 1
    rates = {row["lr"] for row in rows if row["kind"] == "train"}
    assert len(rates) > 3  # as the lengths of the batches
    model = cloze.load(tmp_path / "run", device="cpu")
    found = score_language_model(language_model(model), TEXT * 4)
    assert found.perplexity == pytest.approx(ended.scores["perplexity"], rel=1e-5)


def test_evaluation_in_rows_differs_by_the_context_at_their_beginnings_only(text, tmp_path):
    dev = f'data.dev=["{text}"]'
    one, several = (
        trained(text, tmp_path / str(rows), "lstm", "run.steps=5", dev, f"run.eval_rows={rows}")
        for rows in (1, 4)
    )
    assert several.scores["loss"] == pytest.approx(one.scores["loss"], rel=1e-2)
    assert several.scores["loss"] != one.scores["loss"]


def test_averaging_needs_dev_data(text, tmp_path):
    with raises(ConfigError, "average_patience", fix="--dev"):
        trained(
            *(text, tmp_path / "run", "lstm", "run.steps=2", "data.hold_out=0"),
            "run.average_patience=2",
        )
