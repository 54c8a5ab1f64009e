"""Folders of translators."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import cloze
from cloze.checkpoint.model import Model
from cloze.errors import FolderError
from cloze.text.joint_bpe import decode_sentence, encode_sentences
from helpers import files_of, raises
from translators import TEXTS, VARIETIES, translator


@pytest.mark.parametrize("variety", VARIETIES)
def test_saved_and_loaded_results_are_identical(variety, tmp_path):
    model = translator(variety)
    folder = model.save(tmp_path / "model")
    opened = cloze.load(folder, device="cpu")
    assert isinstance(opened, Model)
    assert opened.config == model.config
    for name, weight in model.module.state_dict().items():
        assert torch.equal(opened.module.state_dict()[name], weight), name
    assert not opened.module.training
    assert opened.tokenizer.encode_ids(TEXTS) == model.tokenizer.encode_ids(TEXTS)
    assert files_of(folder) == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }


def test_encoded_text_is_decoded_unchanged():
    tokenizer = translator().tokenizer
    for text in [*TEXTS, " two  spaces ", "", "Zoë\t猫😀"]:
        assert decode_sentence(tokenizer, encode_sentences(tokenizer, [text])[0][:-1]) == text


def test_a_model_is_saved_into_a_folder_with_other_files(tmp_path):
    (tmp_path / "notes").write_text("mine")
    translator().save_into(tmp_path)
    assert cloze.load(tmp_path).config == translator().config
    assert (tmp_path / "notes").read_text() == "mine"
    assert not (tmp_path / ".model").exists()


def change_settings(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_invalid_folders(tmp_path):
    def fresh(name):
        return translator().save(tmp_path / name)

    folder = fresh("version")
    change_settings(folder, format_version=7)
    with raises(FolderError, "format_version", "7"):
        cloze.load(folder)
    folder = fresh("width")
    change_settings(folder, hidden_size=1 << 40)
    with raises(FolderError, "config.json", "hidden_size"):
        cloze.load(folder)
    folder = fresh("other")
    change_settings(folder, intermediate_size=32)
    with raises(FolderError, "config.json"):
        cloze.load(folder)
    folder = fresh("unknown")
    change_settings(folder, wings=2)
    with raises(FolderError, "wings"):
        cloze.load(folder)
    folder = fresh("vocabulary")
    change_settings(folder, vocab_size=100)
    with raises(FolderError, "config.json", "100", "300"):
        cloze.load(folder)
    folder = fresh("longest")
    change_settings(folder, max_trained_length="all")
    with raises(FolderError, "max_trained_length", "all"):
        cloze.load(folder)
    folder = fresh("weights")
    tensors = load_file(folder / "model.safetensors")
    del tensors["target_embeddings.weight"]
    save_file(tensors, folder / "model.safetensors")
    with raises(FolderError, "target_embeddings.weight"):
        cloze.load(folder)
