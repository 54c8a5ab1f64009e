"""Generation is that of transformers: greedy, beams and filters, token for token."""

import random

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import cloze
from cloze.decode.config import SamplingOptions
from cloze.decode.history import History
from cloze.decode.sampling import filter_probabilities
from helpers import scramble

pytestmark = pytest.mark.parity
PROMPTS = ["The cat", "A dog saw it. The cat sat on the mat.", "mat"]
PENALTIES = [
    {},
    {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 1.2, "no_repeat_ngram_size": 1},
    {"repetition_penalty": 0.8, "no_repeat_ngram_size": 3},
]
EARLY = {"heuristic": False, "full": True, "never": "never"}


def byte_level_tokenizer():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["The cat sat on the mat.", "A dog saw it."] * 50, trainer)
    return transformers.GPT2TokenizerFast(tokenizer_object=backend)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same model here and there, in float64."""
    folder, tokenizer = tmp_path_factory.mktemp("gpt2"), byte_level_tokenizer()
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    peer = scramble(transformers.GPT2LMHeadModel(config).eval())
    with torch.no_grad():
        peer.transformer.wte.weight[0] *= 3  # so that the end is generated now and then
    peer.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = cloze.load(folder)
    model.module.double()
    return model, peer.double(), tokenizer


def generate_theirs(both, prompt, stop, **options):
    _, peer, tokenizer = both
    ids = tokenizer(prompt, return_tensors="pt")
    eos = {"eos_token_id": 0 if stop else None}
    if not stop:  # as ours: it is not generated
        eos["suppress_tokens"] = [0]
    found = peer.generate(
        **ids, max_new_tokens=12, do_sample=False, pad_token_id=0, **eos, **options
    )
    new = found[:, ids["input_ids"].shape[1] :]
    return [tokenizer.decode(row, skip_special_tokens=True) for row in new]


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("penalties", PENALTIES)
def test_greedy(both, penalties, stop):
    ours = cloze.generate(
        both[0], PROMPTS, temperature=0.0, max_new_tokens=12, stop=stop, **penalties
    )
    for prompt, found in zip(PROMPTS, ours, strict=True):
        assert [found[0].continuation] == generate_theirs(both, prompt, stop, **penalties)
    assert stop or {found[0].finish_reason for found in ours} == {"length"}


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize(
    ("beam", "length_penalty", "early_stopping", "penalties"),
    [
        (2, 1.0, "heuristic", {}),
        (3, 0.0, "heuristic", {"no_repeat_ngram_size": 2}),
        (3, 0.0, "full", {"repetition_penalty": 1.7}),
        (4, 2.0, "full", {}),
        (4, 2.0, "heuristic", {"repetition_penalty": 1.2, "no_repeat_ngram_size": 1}),
        (4, 0.5, "never", {"repetition_penalty": 0.8, "no_repeat_ngram_size": 3}),
        (5, 1.0, "never", {}),
        (1, 1.0, "heuristic", {"repetition_penalty": 1.3}),
    ],
)
def test_beam_search(both, beam, length_penalty, early_stopping, penalties, stop):
    ours = cloze.generate(
        both[0],
        PROMPTS,
        beam=beam,
        n_best=beam,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        max_new_tokens=12,
        stop=stop,
        **penalties,
    )
    for prompt, found in zip(PROMPTS, ours, strict=True):
        theirs = generate_theirs(
            both,
            prompt,
            stop,
            num_beams=beam,
            num_return_sequences=beam,
            length_penalty=length_penalty,
            early_stopping=EARLY[early_stopping],
            **penalties,
        )
        assert [one.continuation for one in found] == theirs
        assert beam == 1 or sorted((one.score for one in found), reverse=True) == [
            one.score for one in found
        ]
    if stop and length_penalty == 1 and beam > 1:
        assert {one.finish_reason for found in ours for one in found} == {"end", "length"}


def test_suggested_words(both):
    model, peer, tokenizer = both
    for prompt in PROMPTS:
        with torch.no_grad():
            logits = peer(**tokenizer(prompt, return_tensors="pt")).logits[0, -1]
        expected = logits.softmax(-1).topk(10)
        found = cloze.suggest(model, prompt, top=10).suggestions
        assert [one.id for one in found] == expected.indices.tolist()
        assert [one.probability for one in found] == pytest.approx(expected.values.tolist())


@pytest.mark.parametrize("number", range(12))
def test_the_filtered_distribution(number):
    """All options together, in their order, in float64."""
    rng = random.Random(number)
    options = {
        "temperature": rng.choice([0.5, 1.0, 1.7]),
        "top_k": rng.choice([None, 3, 20]),
        "top_p": rng.choice([1.0, 0.9, 0.4]),
        "min_p": rng.choice([0.0, 0.02, 0.3]),
    }
    penalty, size = rng.choice([1.0, 0.7, 1.6]), rng.choice([0, 1, 2])
    torch.manual_seed(number)
    logits = 3 * torch.randn(4, 50, dtype=torch.float64)
    ids = torch.randint(0, 50, (4, 30))
    processors = [
        transformers.RepetitionPenaltyLogitsProcessor(penalty),
        *([transformers.NoRepeatNGramLogitsProcessor(size)] if size else []),
        transformers.TemperatureLogitsWarper(options["temperature"]),
        *([transformers.TopKLogitsWarper(options["top_k"])] if options["top_k"] else []),
        transformers.TopPLogitsWarper(options["top_p"]),
        transformers.MinPLogitsWarper(options["min_p"]),
    ]
    expected = transformers.LogitsProcessorList(processors)(ids, logits.clone()).softmax(-1)
    history = History(
        ids.tolist(), ids.device, repetition_penalty=penalty, no_repeat_ngram_size=size
    )
    found, order = filter_probabilities(history.apply(logits), SamplingOptions(**options))
    found = torch.zeros_like(found).scatter(1, order, found)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
