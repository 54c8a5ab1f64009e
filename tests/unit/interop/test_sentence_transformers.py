"""The files of sentence-transformers: reading and writing."""

import json
from dataclasses import replace

import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.errors import ConfigError
from cloze.files import read_json
from cloze.interop.sentence_transformers import Pooling
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from helpers import PIECES, files_of, raises, scramble, tiny_tokenizer

CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_layers=2,
    num_heads=2,
    intermediate_size=16,
    max_positions=16,
)
TEXTS = ["the cat sat.", "a b c d e f g h i j", "cat"]


def model_with(heads=(), pooling=None):
    module = scramble(build(CONFIG, heads, rng=torch.Generator())).eval()
    return Model(module=module, tokenizer=tiny_tokenizer(), config=CONFIG, pooling=pooling)


def test_pooling_is_saved_and_loaded(tmp_path):
    pooling = Pooling(
        modes=("cls", "mean"),
        normalize=True,
        max_seq_length=9,
        prompts={"query": "query: ", "document": "passage: "},
        default_prompt="query",
        similarity="dot",
    )
    folder = model_with((), pooling).save(tmp_path / "m")
    assert cloze.load(folder).pooling == pooling
    assert cloze.load(folder).max_length == 9
    assert (pooling.prompt, Pooling().prompt) == ("query: ", "")


def test_old_and_new_keys_of_pooling(tmp_path):
    folder = model_with((), Pooling(modes=("max",))).save(tmp_path / "m")
    file = folder / "1_Pooling" / "config.json"
    file.write_text(json.dumps({"embedding_dimension": 8, "pooling_mode": "cls"}))
    assert cloze.load(folder).pooling.modes == ("cls",)
    file.write_text(json.dumps({"pooling_mode": ["mean", "cls"]}))
    assert cloze.load(folder).pooling.modes == ("mean", "cls")
    file.write_text(json.dumps({"pooling_mode_lasttoken": True}))
    assert cloze.load(folder).pooling.modes == ("lasttoken",)
    file.write_text(json.dumps({"pooling_mode_attention": True}))
    with raises(ConfigError, "pooling_mode_attention", fix=("max", "mean")):
        cloze.load(folder)


@pytest.mark.parametrize(
    ("modes", "named"),
    [
        (("max",), "max"),
        (("weightedmean",), "weightedmean"),
        (("cls", "mean"), None),  # the old keys say it all, and a list stops older readers
        (("mean", "cls"), ["mean", "cls"]),
    ],
)
def test_pooling_is_written_with_old_and_new_keys(modes, named, tmp_path):
    folder = model_with((), Pooling(modes=modes)).save(tmp_path / "m")
    written = read_json(folder / "1_Pooling" / "config.json")
    assert written.get("pooling_mode") == named
    assert written["pooling_mode_mean_tokens"] == ("mean" in modes)
    assert cloze.load(folder).pooling.modes == modes


def test_a_default_prompt_must_exist(tmp_path):
    pooling = Pooling(prompts={"query": "q: ", "empty": ""}, include_prompt=False, max_seq_length=9)
    folder = model_with((), pooling).save(tmp_path / "m")
    assert cloze.load(folder).pooling == pooling
    file = folder / "config_sentence_transformers.json"
    said = read_json(file)
    file.write_text(json.dumps(said | {"default_prompt_name": "other"}))
    assert cloze.load(folder).pooling == pooling
    file.write_text(json.dumps(said | {"default_prompt_name": "query"}))
    with raises(ConfigError, "prompt", "pooling"):
        cloze.load(folder)
    file.write_text(json.dumps(said | {"similarity_fn_name": "dotty"}))
    with raises(ConfigError, "similarity_fn_name", "dotty", fix="dot"):
        cloze.load(folder)


def test_the_max_seq_length_of_the_folder_takes_precedence(tmp_path):
    for limit, setting, most in ((9, 12, 12), (12, 9, 9), (9, None, 9), (9, 99, 16)):
        model = model_with((), Pooling(max_seq_length=setting))
        short = replace(model, tokenizer=model.tokenizer.with_max_length(limit))
        folder = short.save(tmp_path / f"{limit}-{setting}")
        assert (
            short.max_length
            == cloze.load(folder).max_length
            == cloze.info(folder).max_length
            == most
        )


def move_body(folder, path="0_Transformer"):
    """The body in a folder within the folder, as older versions wrote it."""
    inside = folder / path
    inside.mkdir()
    for file in list(folder.iterdir()):
        if file.is_file() and file.name not in (
            "modules.json",
            "config_sentence_transformers.json",
        ):
            file.rename(inside / file.name)
    point(folder, path)
    return folder


def point(folder, path):
    modules = read_json(folder / "modules.json")
    modules[0]["path"] = path
    (folder / "modules.json").write_text(json.dumps(modules))


def test_a_body_in_a_subfolder(tmp_path):
    def embed(model):
        return cloze.embed(model, TEXTS, truncation="head")

    model = model_with((), Pooling(max_seq_length=7, normalize=True))
    folder = move_body(model.save(tmp_path / "m"))
    assert files_of(folder) >= {"0_Transformer/config.json", "0_Transformer/vocab.txt"}
    opened = cloze.load(folder)
    assert opened.pooling == model.pooling
    assert (embed(opened) == embed(model)).all()
    assert cloze.info(folder).max_length == 7
    assert cloze.tokenize(folder, "the cat").ids == model.tokenizer.encode("the cat").ids
    assert (embed(cloze.load(opened.save(tmp_path / "flat"))) != 0).all()


@pytest.mark.parametrize("path", ["../other", "..", "a/b", "/etc", "a\\b", "x" * 61])
def test_a_body_outside_of_the_folder_is_an_error(path, tmp_path):
    folder = model_with((), Pooling()).save(tmp_path / "m")
    model_with((), Pooling()).save(tmp_path / "other")
    point(folder, path)
    with raises(ConfigError, "modules.json", fix="0_Transformer"):
        cloze.load(folder)


def test_do_lower_case_with_a_cased_tokenizer(tmp_path):
    cased = tiny_tokenizer([*PIECES[:-1], "B"], lowercase=False)
    model = replace(model_with((), Pooling(lowercase=True)), tokenizer=cased)
    assert cased.encode("B b").tokens[1:-1] == ["B", "b"]
    opened = cloze.load(model.save(tmp_path / "m"))
    assert opened.tokenizer.encode("B b").tokens[1:-1] == ["b", "b"]
    assert opened.tokenizer.encode("B b").offsets[1:-1] == [(0, 1), (2, 3)]


def test_modules_are_never_imported(tmp_path):
    folder = model_with((), Pooling()).save(tmp_path / "m")
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_X", "type": "os.system"})
    (folder / "modules.json").write_text(json.dumps(modules))
    with raises(ConfigError, "Transformer", "Pooling", "system"):
        cloze.load(folder)
    modules[2]["type"] = "sentence_transformers.models.Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    with raises(ConfigError, "Transformer", "Pooling", "Dense"):
        cloze.load(folder)
    modules[2:] = []
    modules[1]["path"] = "../../etc"
    (folder / "modules.json").write_text(json.dumps(modules))
    with raises(ConfigError, "pooling"):
        cloze.load(folder)
