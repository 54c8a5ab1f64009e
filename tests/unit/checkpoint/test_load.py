"""Model folders: old names, shards, reports, what users get wrong."""

import json
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

import cloze
from cloze.checkpoint.model import Model
from cloze.errors import ClozeError, ConfigError, FolderError, MissingExtraError
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from helpers import (
    MASKED,
    PIECES,
    change_weights,
    files_of,
    raises,
    scramble,
    tiny_model,
    tiny_tokenizer,
)

CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_layers=2,
    num_heads=2,
    intermediate_size=16,
    max_positions=16,
)
IDS = torch.tensor([[2, 5, 6, 7, 3]])


def model_with(heads=("mlm",)):
    module = scramble(build(CONFIG, heads, rng=torch.Generator())).eval()
    return Model(module=module, tokenizer=tiny_tokenizer(), config=CONFIG)


@pytest.fixture
def folder(tmp_path):
    return model_with().save(tmp_path / "model")


def set_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def assert_same_as_new(folder, heads=("mlm",)):
    with torch.no_grad():
        opened = cloze.load(folder, quiet=True)
        assert torch.equal(opened.module(IDS), model_with(heads).module(IDS))
    return opened


# What folders look like


def test_the_files_of_a_folder(folder):
    assert files_of(folder) >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    }
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    assert config["hidden_size"] == 8
    assert config["dtype"] == "float32"
    raw = (folder / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    assert header["__metadata__"] == {"format": "pt"}
    assert "cls.predictions.decoder.weight" not in header
    assert "bert.pooler.dense.weight" not in header


def test_old_names_of_norms(folder):
    def old(tensors):
        spelled = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for name in list(tensors):
            for new, gone in spelled.items():
                if name.endswith(new):
                    tensors[name.replace(new, gone)] = tensors.pop(name)

    change_weights(folder, old)
    assert not assert_same_as_new(folder).report


def test_the_body_without_its_prefix(folder):
    change_weights(
        folder, lambda t: {name.removeprefix("bert."): value for name, value in t.items()}
    )
    assert not assert_same_as_new(folder).report


def test_a_base_model_with_its_prefix(tmp_path):
    folder = model_with(()).save(tmp_path / "body")
    change_weights(folder, lambda t: {f"bert.{name}": value for name, value in t.items()})
    assert not assert_same_as_new(folder, ()).report


def test_a_doubled_prefix(folder):
    change_weights(
        folder,
        lambda t: {f"bert.{n}" if n.startswith("bert.") else n: value for n, value in t.items()},
    )
    assert not assert_same_as_new(folder).report


def test_copies_of_tied_weights_and_old_buffers_are_not_reported(folder):
    def add(tensors):
        tensors["cls.predictions.decoder.weight"] = torch.zeros(len(PIECES), 8)
        tensors["cls.predictions.decoder.bias"] = torch.zeros(len(PIECES))
        tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]

    change_weights(folder, add)
    assert not assert_same_as_new(folder).report


def test_the_bias_under_the_decoder_only(folder):
    def move(tensors):
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    change_weights(folder, move)
    opened = assert_same_as_new(folder)
    assert torch.equal(
        opened.module.task_heads["mlm"].bias, model_with().module.task_heads["mlm"].bias
    )


def test_a_vocabulary_without_tokenizer_json(folder):
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    opened = assert_same_as_new(folder)
    assert opened.tokenizer.encode("the cat").ids == tiny_tokenizer().encode("the cat").ids


def test_shards(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, half = sorted(tensors), len(tensors) // 2
    parts = {"a.safetensors": names[:half], "b.safetensors": names[half:]}
    for file, inside in parts.items():
        save_file({name: tensors[name] for name in inside}, folder / file)
    index = {"weight_map": {name: file for file, inside in parts.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same_as_new(folder)

    (folder / "b.safetensors").unlink()
    with raises(FolderError, "b.safetensors"):
        cloze.load(folder)
    for evil in ("../b.safetensors", "/etc/passwd", "b.bin", ""):
        index["weight_map"][names[0]] = evil
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        with raises(FolderError, "safetensors", "folder"):
            cloze.load(folder)


def test_half_precision_on_disk_is_float32_in_use(folder):
    change_weights(folder, lambda t: {name: value.half() for name, value in t.items()})
    assert cloze.load(folder).dtype == torch.float32
    assert cloze.load(folder, dtype="bf16").dtype == torch.bfloat16
    with raises(ConfigError, "dtype", "float23", fix="float32"):
        cloze.load(folder, dtype="float23")


# The class


@pytest.mark.parametrize("family", MASKED)
@pytest.mark.parametrize("said", [None, [], ["MyBert"], "MyBert", [{}], True])
def test_the_heads_of_an_unknown_class_follow_from_the_weights(family, said, tmp_path):
    model = tiny_model("mlm", family=family)
    folder = model.save(tmp_path / "m")
    set_config(folder, architectures=said)
    opened = cloze.load(folder, quiet=True)
    assert opened.task_heads == ("mlm",)
    assert torch.equal(opened.module(IDS), model.module(IDS))
    called = said[0] if said and isinstance(said, list) else said
    assert opened.report.ignored == ((f"architectures: {called}",) if said else ())
    assert cloze.info(folder).task_heads == ("mlm",)


@pytest.mark.parametrize("family", ["openai-gpt", "gpt2", "gpt3"])
@pytest.mark.parametrize("said", ["MyGPT", [{}], True])
def test_an_unknown_class_of_a_gpt_has_no_head_if_the_weights_are_tied(family, said, tmp_path):
    folder = tiny_model("lm", family=family).save(tmp_path / "m")
    set_config(folder, architectures=said)
    opened = cloze.load(folder, quiet=True)
    assert opened.task_heads == ()
    assert opened.report.ignored


@pytest.mark.parametrize(
    ("head", "heads", "left"),
    [
        ("span", ("span",), ()),
        ("sequence", (), ("classifier.bias", "classifier.weight")),  # or those of tags, or choices
    ],
)
def test_heads_follow_from_the_weights(head, heads, left, tmp_path):
    folder = tiny_model(head).save(tmp_path / "m")
    set_config(folder, architectures=["MyBertForFun"])
    opened = cloze.load(folder, quiet=True)
    assert opened.task_heads == heads
    assert opened.report.unexpected == left


def test_only_the_first_head_if_no_class_has_all_of_them(folder):
    change_weights(folder, lambda t: t.update({"qa_outputs.weight": torch.zeros(2, 8)}))
    set_config(folder, architectures=["MyMultiBert"])
    opened = cloze.load(folder, quiet=True)
    assert opened.task_heads == ("mlm",)
    assert opened.report.unexpected == ("qa_outputs.weight",)


# The report


def test_unexpected_weights_and_unknown_settings_are_reported(folder, capsys):
    change_weights(folder, lambda t: t.update({"adapter.weight": torch.zeros(2)}))
    set_config(folder, shiny_new_setting=3)
    report = cloze.load(folder).report
    assert report.unexpected == ("adapter.weight",)
    assert report.ignored == ("shiny_new_setting",)
    shown = capsys.readouterr().err
    assert "adapter.weight" in shown
    assert "shiny_new_setting" in shown
    cloze.load(folder, quiet=True)
    assert capsys.readouterr().err == ""


def test_missing_weights_are_an_error_unless_allowed(folder):
    change_weights(
        folder, lambda t: {n: v for n, v in t.items() if "predictions.transform" not in n}
    )
    with raises(FolderError, "4", "transform", fix="allow_missing=True"):
        cloze.load(folder)
    opened = cloze.load(folder, allow_missing=True, quiet=True)
    assert len(opened.report.missing) == 4
    assert torch.equal(opened.module(IDS), model_with().module(IDS))
    assert torch.equal(opened.module.task_heads["mlm"].dense.bias, torch.zeros(8))


# Saving


def test_saving_overwrites_only_with_force(folder):
    before = (folder / "model.safetensors").read_bytes()
    with raises(FolderError, "exists", fix="force=True"):
        model_with().save(folder)
    assert (folder / "model.safetensors").read_bytes() == before
    (folder / "stray").write_text("x")
    model_with().save(folder, force=True)
    assert "stray" not in files_of(folder)
    assert list(folder.parent.iterdir()) == [folder]


def test_heads_that_no_class_of_transformers_has(tmp_path):
    with raises(ConfigError, "mlm", "sequence", fix="separate"):
        model_with(("mlm", "sequence")).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


# What users get wrong


def test_a_missing_folder(tmp_path):
    with raises(FolderError, "folder", "nowhere"):
        cloze.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with raises(FolderError, "file", fix="config.json"):
        cloze.load(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with raises(FolderError, "config.json"):
        cloze.load(tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("~nosuchuser/x", "~nosuchuser/x"),
        ("x" * 300, "too long"),
        ("x" * 300 + ".arpa", "too long"),
        ("x" * 200 + "/" + "y" * 200, "x" * 200),
    ],
)
def test_an_invalid_path(name, said, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for verb in (cloze.load, cloze.info, lambda path: cloze.tokenize(path, "a")):
        with raises(ClozeError, said):
            verb(name)


def test_a_name_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with raises(MissingExtraError, "org/name", fix="pip install 'cloze[hub]'"):
        cloze.load("org/name")
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    model_with().save(snapshot)
    (tmp_path / "models--org--name" / "refs").mkdir()
    (tmp_path / "models--org--name" / "refs" / "main").write_text("abc")
    assert cloze.load("org/name").task_heads == ("mlm",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bart"}, ("model_type", "bart", "bert", "distilbert")),
        ({"model_type": None}, "model_type"),
        ({"model_type": ["bert"]}, "model_type"),
        ({"position_embedding_type": "relative_key"}, "absolute"),
        ({"is_decoder": "yes"}, ("config.json", "is_decoder", "yes")),
        ({"is_decoder": True, "add_cross_attention": True}, "add_cross_attention"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_act": "swiglu"}, ("hidden_act", "swiglu")),
        ({"hidden_size": 10**12}, ("hidden_size", "1000000000000")),
        ({"num_hidden_layers": 10**9}, ("num_hidden_layers", "1000000000")),
        ({"num_hidden_layers": 3}, "16"),
        ({"hidden_size": 10}, ("25", "8", "model.safetensors", "config.json", "10")),
        ({"vocab_size": 5}, ("tokenizer", "25", "config.json", "5")),
        ({"vocab_size": "many"}, ("vocab_size", "many")),
        ({"num_attention_heads": 3}, ("hidden_size", "8", "3")),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ({"id2label": []}, "id2label"),
        ({"id2label": {"0": "a", "1": "a"}}, ("labels", "a, a")),
        ({"id2label": {"0": "a", "1": None}}, ("labels", "None")),
        ({"problem_type": "poetry"}, ("problem_type", "poetry")),
        ({"tie_word_embeddings": "yes"}, ("tie_word_embeddings", "yes")),
        ({"hidden_dropout_prob": "a lot"}, ("hidden_dropout_prob", "a lot")),
        ({"layer_norm_eps": None}, "layer_norm_eps"),
    ],
)
def test_unsupported_settings(folder, changes, message):
    set_config(folder, **changes)
    with raises(ClozeError, message):
        cloze.load(folder)


def test_code_named_in_config_json_is_not_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    set_config(folder, auto_map={"AutoModel": "evil.Evil"}, trust_remote_code=True)
    assert cloze.load(folder, quiet=True).report.ignored == ("auto_map", "trust_remote_code")
