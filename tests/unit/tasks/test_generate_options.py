"""Options of `generate`: beams, penalties, stop strings, streaming, and what contradicts itself."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.decode.continuation import ContinuationText
from cloze.decode.language import language_model
from cloze.errors import ConfigError, InputError, TruncationWarning
from cloze.text.tokenizer_training import train_tokenizer
from generated_examples import examples
from grams import TEXT, text_model
from helpers import raises, tiny_model
from languages import neural_model

BYTES = train_tokenizer([*TEXT, "é ü 猫 😀 …"] * 3, kind="bpe", vocab_size=330)
TOKENIZERS = {
    "bpe": BYTES,
    "wordpiece": train_tokenizer(TEXT, vocab_size=60),
    "fallback": train_tokenizer(TEXT, vocab_size=560, byte_fallback=True),
    "word": train_tokenizer(TEXT, kind="word"),
    "char": train_tokenizer(TEXT, kind="char"),
}


def make_gpt(family="gpt2", positions=24):
    return tiny_model(
        "lm", family=family, tokenizer=BYTES, vocab_size=BYTES.vocab_size, positions=positions
    )


MODELS = {
    "ngram": text_model(3),
    "nnlm": neural_model("nnlm"),
    "lstm": neural_model("lstm", BYTES),
    "bert": tiny_model("mlm", is_causal=True),
    "gpt": make_gpt("openai-gpt"),
    "gpt2": make_gpt(),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_every_option(name):
    options = {"max_new_tokens": 6, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2}
    (one,) = cloze.generate(MODELS[name], "the cat", min_p=0.01, top_p=0.95, **options)
    assert one.finish_reason in ("end", "length")
    found = cloze.generate(MODELS[name], ["", "the cat"], beam=3, n_best=2, **options)
    assert [len(each) for each in found] == [2, 2]
    for each in found:
        assert each[0].continuation != each[1].continuation
        assert all(one.finished == (one.finish_reason != "length") for one in each)
    chunks = cloze.generate(MODELS[name], "the cat", stream=True, **options)
    assert "".join(chunks) == cloze.generate(MODELS[name], "the cat", **options)[0].continuation


@pytest.mark.parametrize("name", MODELS)
def test_beams_score_at_least_as_well_as_greedy(name):
    options = {"max_new_tokens": 3, "stop": False}
    (greedy,) = cloze.generate(MODELS[name], "the cat", temperature=0.0, **options)
    (one,) = cloze.generate(MODELS[name], "the cat", beam=1, length_penalty=2.0, **options)
    assert one == greedy
    best, second = cloze.generate(MODELS[name], "the cat", beam=40, n_best=2, **options)
    assert second.log_probability <= best.log_probability
    assert best.log_probability >= greedy.log_probability - 1e-5


def test_no_n_gram_of_the_prompt_is_repeated():
    options = {"temperature": 0.0, "max_new_tokens": 12, "stop": False}
    text = "the cat sat on a mat"
    for size in (1, 2):
        (one,) = cloze.generate(MODELS["nnlm"], text, no_repeat_ngram_size=size, **options)
        words = one.full_text.split()
        grams = list(zip(*(words[n:] for n in range(size)), strict=False))
        assert len(grams) == len(set(grams))


@pytest.mark.parametrize("how", [{}, {"beam": 2}])
def test_a_text_ends_where_no_token_is_allowed(how):
    model = text_model(2)
    (one,) = cloze.generate(model, "", no_repeat_ngram_size=1, stop=False, **how)
    words = len(language_model(model).vocabulary) - 3
    assert len(one.tokens) == words
    assert one.finish_reason == "end"


def test_the_repetition_penalty_changes_what_is_generated_not_its_probability():
    options = {"temperature": 0.0, "max_new_tokens": 12, "stop": False}
    model = MODELS["nnlm"]
    plain, other = (
        cloze.generate(model, "the cat", repetition_penalty=x, **options)[0] for x in (1.0, 1e3)
    )
    assert len(set(other.tokens)) > len(set(plain.tokens))
    for how in (options, {"max_new_tokens": 12, "stop": False, "beam": 2}):
        (one,) = cloze.generate(model, "the cat", repetition_penalty=1.4, **how)
        tokens = cloze.score(model, one.full_text).tokens
        total = sum(token.log_probability for token in tokens[2:-1])
        assert one.log_probability == pytest.approx(total, abs=1e-4)


STOPS = st.lists(st.text("abet 猫é", min_size=1, max_size=4), max_size=3)


@pytest.mark.parametrize("name", ["gpt2", "lstm", "ngram", "bert"])
@examples(25)
@given(seed=st.integers(0, 99), stops=STOPS, data=st.data(), how=st.sampled_from("sb"))
def test_the_text_ends_at_the_first_stop_string(name, seed, stops, data, how):
    included = bool(stops) and data.draw(st.booleans())
    options = {"max_new_tokens": 15, "stop": False, "no_repeat_ngram_size": 2}
    options |= {"beam": 2} if how == "b" else {"seed": seed}
    found = cloze.generate(
        MODELS[name], "the", stop_strings=stops, include_stop_string=included, **options
    )
    (one,) = found
    text = one.continuation
    if one.finish_reason == "length":
        assert len(one.tokens) == 15
        assert not any(stop in text for stop in stops)
        return
    assert one.finish_reason == "stop"
    ends = [stop for stop in stops if text.endswith(stop)]
    if included:
        assert ends
        text = text.removesuffix(max(ends, key=len))
    assert not any(stop in text for stop in stops)
    if how == "s":  # it is the beginning of what is generated without stop strings
        whole = cloze.generate(MODELS[name], "the", **options)[0]
        assert whole.tokens[: len(one.tokens)] == one.tokens
        assert any(whole.continuation.startswith(text + stop) for stop in stops)


@pytest.mark.parametrize("name", ["gpt2", "lstm", "ngram", "bert"])
@examples(25)
@given(seed=st.integers(0, 99), stops=STOPS, text=st.sampled_from(["", "the cat", "é ", "猫"]))
def test_the_chunks_of_a_stream_are_the_continuation(name, seed, stops, text):
    options = {"seed": seed, "stop_strings": stops, "max_new_tokens": 20}
    stream = cloze.generate(MODELS[name], text, stream=True, **options)
    with raises(InputError, "stream", fix="all"):
        stream.result  # noqa: B018
    chunks = list(stream)
    assert all(chunks)
    assert stream.result == cloze.generate(MODELS[name], text, **options)
    assert "".join(chunks) == stream.result[0].continuation
    assert next(stream, None) is None


@pytest.mark.parametrize("kind", TOKENIZERS)
@examples(40)
@given(data=st.data(), text=st.sampled_from(["", "the cat", "the ", "猫"]))
def test_what_was_streamed_is_never_taken_back(kind, data, text):
    """The stable text of every prefix begins that of the next; it never ends inside a character."""
    tokenizer = TOKENIZERS[kind]
    model = language_model(neural_model("lstm", tokenizer))
    ids = st.lists(st.integers(3, len(model.vocabulary) - 1), max_size=12)
    tokens = data.draw(ids | st.lists(st.integers(0, 255), max_size=9).map(_encode_bytes(model)))
    continuation = ContinuationText(model, text, model.encode_prompt(text))
    texts = [continuation.decode_stable(tokens[:n]) for n in range(len(tokens) + 1)]
    for before, after in itertools.pairwise(texts):
        assert after.startswith(before)
    assert continuation.decode(tokens).startswith(texts[-1])
    assert not any(each.endswith("\N{REPLACEMENT CHARACTER}") for each in texts)


def _encode_bytes(model):
    def encode(values):
        text = bytes(values).decode(errors="ignore")
        return model.encode_texts([text])[0][1:-1]

    return encode


def test_characters_of_several_tokens_are_streamed_whole():
    model = language_model(neural_model("lstm", BYTES))
    text = "é 🙂 ÿ"
    ids = model.encode_texts([text])[0][1:-1]
    continuation = ContinuationText(model, "", model.encode_prompt(""))
    shown = [continuation.decode_stable(ids[:n]) for n in range(len(ids) + 1)]
    assert len(ids) > len(text)
    assert set(shown) <= {text[:n] for n in range(len(text) + 1)}
    assert shown[-1] == text


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_a_text_goes_on_beyond_the_positions_of_a_gpt(family):
    """The first token and the last ones are read again; streamed and in beams as well."""
    model = make_gpt(family, positions=8)
    options = {"max_new_tokens": 15, "stop": False}
    (one,) = cloze.generate(model, "the cat", seed=1, **options)
    assert (len(one.tokens), one.finish_reason) == (15, "length")
    assert "".join(cloze.generate(model, "the cat", seed=1, stream=True, **options)) == (
        one.continuation
    )
    assert len(cloze.generate(model, "the cat", beam=2, **options)[0].tokens) == 15
    language = language_model(model)
    context = language.encode_prompt("the cat")
    for token in cloze.generate(model, "the cat", temperature=0.0, **options)[0].tokens:
        read = [context[0], *context[1:][-7:]]
        best = int(language.next_log_probs(read).argsort()[-1])
        best = best if best != language.eos_id else int(language.next_log_probs(read).argsort()[-2])
        assert language.decode_token(best) == token
        context = [*context, best]


def test_a_long_prompt_is_truncated_or_an_error():
    model, text = make_gpt(positions=8), "the cat sat on the mat and the zebra slept"
    with pytest.warns(TruncationWarning):
        stream = cloze.generate(model, text, stream=True, max_new_tokens=3)
    assert "".join(stream) == stream.result[0].continuation
    assert stream.result.truncated_chars > 0
    with raises(InputError, "8", fix="shorten"):
        cloze.generate(model, text, beam=2, truncation="error")


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        ({"beam": 2, "temperature": 0.7}, ("temperature", "0.7", "beam"), "leave out"),
        ({"beam": 2, "top_k": 5}, ("top_k", "5", "beam"), "leave out"),
        ({"beam": 2, "min_p": 0.5}, ("min_p", "beam"), "leave out"),
        ({"beam": 2, "samples": 3}, ("samples", "3", "beam"), "n_best"),
        ({"beam": 2, "n_best": 3}, ("n_best", "3", "2"), "larger beam"),
        ({"n_best": 3}, ("n_best", "3", "beam search"), "beam"),
        ({"length_penalty": 2.0}, ("length_penalty", "beam search"), "beam"),
        ({"early_stopping": "full"}, ("early_stopping", "beam search"), "beam"),
        ({"beam": 2, "early_stopping": "soon"}, ("early_stopping", "soon"), "full"),
        ({"min_p": 1.5}, ("min_p", "1.5"), "0 to 1"),
        ({"repetition_penalty": 0.0}, ("repetition_penalty", "0.0"), "number"),
        ({"no_repeat_ngram_size": -1}, ("no_repeat_ngram_size", "-1"), "number"),
        ({"stop_strings": [""]}, ("stop string", "empty"), "leave it out"),
        ({"stop_strings": "."}, ("stop_strings", "."), "list"),
        ({"stop_strings": [3]}, ("stop string", "3"), "str"),
        ({"include_stop_string": True}, ("include_stop_string", "no stop strings"), "leave out"),
        ({"stream": True, "samples": 2}, ("stream", "2 samples"), "samples"),
        ({"stream": True, "beam": 2}, ("stream", "beam search"), "beam"),
    ],
)
def test_what_contradicts_itself(options, said, fix):
    with raises(ConfigError, said, fix=fix):
        cloze.generate(MODELS["ngram"], "the", **options)


def test_several_texts_are_not_streamed():
    with raises(InputError, "several", fix="one"):
        cloze.generate(MODELS["ngram"], ["the"], stream=True)
