"""`export onnx`: every task head equals the module, for any batch and length."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.errors import ConfigError, InputError
from cloze.interop.sentence_transformers import Pooling
from cloze.tasks import export_onnx
from cloze.text.tokenizer import Tokenizer
from grams import text_model
from helpers import raises, tiny_model

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
pytest.importorskip("onnxscript", reason="pip install onnxscript")

CASES = [
    ("bert", "fill", "mlm"),
    ("modernbert", "classify", "sequence"),
    ("bert", "embed", None),
    # an export takes seconds
    pytest.param("roberta", "answer", "span", marks=pytest.mark.stress),
    pytest.param("distilbert", "tag", "token", marks=pytest.mark.stress),
    pytest.param("bert", "choose", "choice", marks=pytest.mark.stress),
]


def run(folder, texts):
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    tokenizer = Tokenizer.load(folder)
    encoded = [tokenizer.encode(text) for text in texts]
    longest = max(map(len, encoded))
    columns = {
        "input_ids": [one.ids for one in encoded],
        "attention_mask": [[1] * len(one) for one in encoded],
        "token_type_ids": [one.type_ids for one in encoded],
    }
    given = {
        name: np.array([row + [0] * (longest - len(row)) for row in rows], np.int64)
        for name, rows in columns.items()
        if name in {one.name for one in session.get_inputs()}
    }
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True)), [len(one) for one in encoded]


@pytest.mark.parametrize(("family", "task", "head"), CASES)
def test_heads_equal_the_model(family, task, head, tmp_path):
    model = tiny_model(*([head] if head else []), family=family, num_layers=1)
    assert cloze.export("onnx", model, tmp_path / "out") == tmp_path / "out"
    texts = ["the cat sat", "a b c d e f g", "cats"]
    found, lengths = run(tmp_path / "out", texts)
    assert list(found) == export_onnx.output_names(task)
    with torch.inference_mode():
        for n, (text, length) in enumerate(zip(texts, lengths, strict=True)):
            encoded = model.tokenizer.encode(text)
            ids, types = torch.tensor([encoded.ids]), torch.tensor([encoded.type_ids])
            hidden = model.module(ids, None, types)
            if task == "embed":
                assert np.allclose(found["sentence_embedding"][n], model.embed(text), atol=1e-4)
                continue
            pooled = model.module.uses_pooler(head)
            chosen = torch.tensor([0]) if pooled else torch.arange(length)
            logits = model.module.logits(
                head, model.module.head_inputs(head, hidden, chosen, None)
            ).numpy()
            if task == "answer":
                both = np.stack([found["start_logits"], found["end_logits"]], -1)[n, :length]
                assert np.allclose(both, logits, atol=1e-4)
            else:
                rows = found["logits"][n]
                assert np.allclose(rows if pooled else rows[:length], logits, atol=1e-4)


def test_the_bands_of_a_gpt3(tmp_path):
    model = tiny_model("lm", family="gpt3", num_layers=2, window_size=3)
    assert model.capabilities["export"] == "an ONNX file"
    cloze.export("onnx", model, tmp_path / "out")
    texts = ["the cat sat", "a b c d e f g a b c d e f g", "cats"]
    found, lengths = run(tmp_path / "out", texts)
    assert max(lengths) > 2 * 3
    for n, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        with torch.inference_mode():
            hidden = model.module(torch.tensor([model.tokenizer.encode(text).ids]))[0].numpy()
        assert np.allclose(found["last_hidden_state"][n, :length], hidden, atol=1e-4)
    with raises(InputError, "huggingface", "GPT-3", fix="onnx"):
        cloze.export("huggingface", model, tmp_path / "other")


@pytest.mark.stress
def test_next_sentence_prediction(tmp_path):
    model = tiny_model("mlm", "nsp", num_layers=1)
    cloze.export("onnx", model, tmp_path / "out", task="classify")
    found, _ = run(tmp_path / "out", ["the cat sat"])
    with torch.inference_mode():
        hidden = model.module(torch.tensor([model.tokenizer.encode("the cat sat").ids]))
        expected = model.module.logits("nsp", hidden[:, 0]).numpy()
    assert np.allclose(found["logits"], expected, atol=1e-4)


@pytest.mark.stress
def test_pooling_and_normalization_of_the_folder(tmp_path):
    modes = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
    pooling = Pooling(modes=modes, normalize=True)
    model = replace(tiny_model("mlm", num_layers=1), pooling=pooling)
    cloze.export("onnx", model, tmp_path / "out")
    texts = ["the cat sat", "a b c d e f g", "cats"]
    found, _ = run(tmp_path / "out", texts)
    expected = model.embed(texts)
    assert expected.shape == (3, 6 * 16)
    assert np.abs(found["sentence_embedding"] - expected).max() <= 1e-4
    assert np.allclose(np.linalg.norm(found["sentence_embedding"], axis=1), 1.0, atol=1e-5)


def test_int8_and_the_pooling_of_the_folder(tmp_path):
    pooling = Pooling(modes=("cls", "max"), normalize=True)
    model = replace(tiny_model("mlm", hidden_size=32, positions=64, num_layers=1), pooling=pooling)
    cloze.export("onnx", model, tmp_path / "out", dtype="int8")
    found, _ = run(tmp_path / "out", ["the cat sat", "a b"])
    expected = model.embed(["the cat sat", "a b"])
    assert found["sentence_embedding"].shape == expected.shape
    assert (found["sentence_embedding"] * expected).sum(1).min() > 0.97
    assert b"MatMulInteger" in (tmp_path / "out" / "model.onnx").read_bytes()


def test_a_file_that_differs_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(export_onnx, "MAX_DIFFERENCE", -1.0)
    with raises(ConfigError, "sentence_embedding", fix="onnxruntime"):
        cloze.export("onnx", tiny_model(num_layers=1), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported(tmp_path):
    with raises(InputError, "onnx", fix="arpa"):
        cloze.export("onnx", text_model(), tmp_path / "out")
    with raises(InputError, "tag", "token"):
        cloze.export("onnx", tiny_model("mlm"), tmp_path / "out", task="tag")
    with raises(ConfigError, "dtype", "int4", fix="int8"):
        cloze.export("onnx", tiny_model("mlm"), tmp_path / "out", dtype="int4")
    with raises(InputError, "huggingface", "task", fix="task"):
        cloze.export("huggingface", tiny_model("mlm"), tmp_path / "out", task="fill")
