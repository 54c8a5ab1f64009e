"""`translate` by a decoder-only model against `generate` of transformers, token for token."""

from dataclasses import replace

import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.models.configs.gpt import GPT2Config
from cloze.tasks.source_to_target import make_translator
from cloze.text.joint_bpe import decode_sentence, train_joint_bpe
from cloze.text.tokenizer_training import add_special_token
from helpers import scramble
from translators import TEXTS

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer = add_special_token(train_joint_bpe(TEXTS, 300), "<|sep|>")
    config = GPT2Config(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        intermediate_size=64,
        max_positions=64,
    )
    model = Model.from_config(config, tokenizer, ["lm"], rng=torch.Generator().manual_seed(0))
    scramble(model.module, 3, 0.5)
    task = Task(name="translate", separator="<|sep|>")
    return replace(model, task=task).save(tmp_path_factory.mktemp("decoder") / "model")


@pytest.mark.parametrize("text", TEXTS[:3])
def test_greedy_search_is_that_of_transformers(folder, text):
    ours = cloze.load(folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    names = transformers.AutoTokenizer.from_pretrained(folder)
    translator = make_translator(ours)
    (prompt,) = translator.encode_sources([text])
    assert names(f"<|endoftext|> {text}<|sep|>").input_ids == prompt
    most = int(2 * len(prompt)) + 10
    found = theirs.generate(
        torch.tensor([prompt]),
        max_new_tokens=min(most, 64 - len(prompt)),
        do_sample=False,
        eos_token_id=translator.eos_id,
        pad_token_id=translator.eos_id,
        suppress_tokens=[translator.separator_id],
    )[0, len(prompt) :].tolist()
    wanted = found[: found.index(translator.eos_id)] if translator.eos_id in found else found
    one = ours.translate(text, beam=1).candidates[0]
    text_of = decode_sentence(ours.tokenizer, wanted)
    assert one.text[: len(text_of)] == text_of
    if translator.eos_id in found:
        assert (one.text, one.finished) == (text_of, True)
