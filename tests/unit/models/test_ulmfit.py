"""ULMFiT: the language model as an encoder, concat pooling, gradients of long texts."""

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.recurrent_encoder import make_recurrent_encoder
from cloze.errors import FolderError
from cloze.files import read_json, write_json
from cloze.models.build import build
from cloze.models.configs.ngram import EOS
from cloze.models.language import Vocabulary
from cloze.nn.heads import PooledClassificationHead
from cloze.nn.layout import Packed
from cloze.text.tokenizer_training import train_tokenizer
from grams import TEXT
from helpers import raises
from languages import neural_model
from recurrent import recurrent_encoder

SENTENCES = ["the cat sat on the mat", "a dog", "the", ""]


def read_rows(module, ids, attention_mask=None):
    hidden = module(ids, attention_mask)
    return module.head_inputs("sequence", hidden, torch.zeros(0), attention_mask)


@pytest.mark.parametrize("kind", ["spaced", "word", "bpe"])
def test_the_encoder_computes_the_states_of_the_language_model(kind):
    tokenizer = None
    if kind != "spaced":
        tokenizer = train_tokenizer(TEXT * 3, kind=kind, vocab_size=300)
    model = neural_model("awd", tokenizer)
    encoder = make_recurrent_encoder(model)
    vocabulary = Vocabulary(model.tokenizer)
    for text in SENTENCES:
        ids = torch.tensor([encoder.tokenizer.encode(text).ids])
        own = torch.tensor([[EOS, *vocabulary.encode([text])[0], EOS]])
        states, _ = model.module(own, model.module.init_state(1))
        torch.testing.assert_close(encoder.module(ids), states)


def test_a_language_model_embeds_texts_as_its_encoder_does():
    model = neural_model("awd")
    encoder = make_recurrent_encoder(model)
    for options in ({}, {"layers": [0, 2], "pooling": "max"}):
        found = cloze.embed(model, SENTENCES, **options)
        np.testing.assert_array_equal(found, cloze.embed(encoder, SENTENCES, **options))
    vectors = cloze.embed(model, "the cat", pooling="none")
    assert vectors.encoding.tokens == ["</s>", "the", "cat", "</s>"]


def test_packed_padded_and_single_texts_are_the_same():
    model = recurrent_encoder()
    module, rows = model.module, [model.tokenizer.encode(text).ids for text in SENTENCES]
    lengths = [len(row) for row in rows]
    flat = torch.tensor([id_ for row in rows for id_ in row])
    packed = Packed.from_lengths(lengths, torch.device("cpu"))
    padded = torch.tensor([row + [0] * (max(lengths) - len(row)) for row in rows])
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    alone = torch.cat([read_rows(module, torch.tensor([row])) for row in rows])
    torch.testing.assert_close(read_rows(module, flat, packed), alone)
    torch.testing.assert_close(read_rows(module, padded, mask), alone)
    layers = list(module.hidden_states(flat, packed))
    assert [layer.shape[-1] for layer in layers] == [5, 8, 8, 5]
    torch.testing.assert_close(layers[-1], module(flat, packed))
    assert module.num_layers == len(layers) - 1


@pytest.mark.parametrize("concat_pooling", [True, False])
def test_concat_pooling_is_last_maximum_and_mean(concat_pooling):
    module = recurrent_encoder(concat_pooling=concat_pooling).module
    hidden = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    found = module.head_inputs("sequence", hidden, torch.zeros(0), mask)
    for row, length, one in zip(hidden, (3, 4), found, strict=True):
        parts = [row[length - 1]]
        if concat_pooling:
            parts += [row[:length].max(0).values, row[:length].sum(0) / length]
        torch.testing.assert_close(one, torch.cat(parts))


def test_the_head_is_two_blocks_with_batch_norm():
    head = PooledClassificationHead(6, 4, 3, dropout=0.0, hidden_dropout=0.0).double()
    x = torch.randn(5, 6, dtype=torch.float64)

    def normalise(v):
        return (v - v.mean(0)) / (v.var(0, unbiased=False) + 1e-5).sqrt()

    hidden = (normalise(x) @ head.dense.weight.T + head.dense.bias).clamp(min=0)
    wanted = normalise(hidden) @ head.out.weight.T + head.out.bias
    torch.testing.assert_close(head.train()(x), wanted)
    before = head.norm.running_mean.clone()
    assert head(x[:1]).isfinite().all()  # a batch of one text
    assert torch.equal(head.norm.running_mean, before)
    assert "norm.num_batches_tracked" not in head.state_dict()


def test_long_texts_have_gradients_at_their_end_only_and_states_of_all_tokens():
    options = dict.fromkeys(
        ("dropout", "weight_dropout", "embedding_dropout", "input_dropout", "output_dropout"), 0.0
    )
    module = recurrent_encoder(bptt_length=3, gradient_length=4, **options).module
    ids = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10, 11]])
    states = module(ids)
    module.train()
    in_slices = module(ids)
    torch.testing.assert_close(in_slices, states)
    in_slices.sum().backward()
    rows = module.embeddings.word.weight.grad.any(-1)
    assert rows.nonzero().flatten().tolist() == [6, 7, 8, 9, 10, 11]  # the last two slices


def test_dropout_is_that_of_training_layers_only():
    module = recurrent_encoder().module.train()
    ids = torch.tensor([[3, 4, 5, 6]])
    for part in (module.embeddings, *module.blocks):
        part.eval()
    with torch.no_grad():
        first, second = (list(module.hidden_states(ids))[-1] for _ in range(2))
        assert torch.equal(first, second)
        module.blocks[-1].train()
        first, second = (list(module.hidden_states(ids)) for _ in range(2))
        assert torch.equal(first[2], second[2])
        assert not torch.equal(first[3], second[3])


def test_a_folder_with_a_wrong_head_is_refused(tmp_path):
    folder = recurrent_encoder().save(tmp_path / "model")
    values = read_json(folder / "config.json")
    assert values["task_heads"] == ["sequence"]
    write_json(folder / "config.json", values | {"task_heads": ["mlm"]})
    with raises(FolderError, "task_heads", "mlm", "sequence"):
        cloze.load(folder)


def test_initial_weights_depend_on_the_generator_only():
    config = recurrent_encoder().config
    one, other = (
        build(config, ["sequence"], rng=torch.Generator().manual_seed(1)).state_dict()
        for _ in range(2)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
