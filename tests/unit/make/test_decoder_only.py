"""Translation and summarisation by a decoder-only model, through the public functions."""

import json

import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.decode.beam import beam_search
from cloze.decode.config import BeamConfig
from cloze.errors import ConfigError, FolderError, InputError
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.gpt import GPT2Config, GPTConfig
from cloze.tasks.source_to_target import make_translator
from cloze.text.backends import build_word_bpe
from cloze.text.joint_bpe import train_joint_bpe
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from helpers import raises

SOURCE = ["a dog runs", "a cat sleeps", "the dog sleeps", "the cat runs", "one dog", "two cats"]
TARGET = [
    "ein Hund läuft",
    "eine Katze schläft",
    "der Hund schläft",
    "die Katze läuft",
    "ein Hund",
    "zwei Katzen",
]
ROWS = [{"article": s, "highlights": t} for s, t in zip(SOURCE, TARGET, strict=True)]
SETTINGS = {
    "loss.label_smoothing": 0.0,
    "optimizer.lr": 3e-3,
    "run.steps": 60,
    "run.eval_every": 60,
    "run.dropout": 0.0,
}
SMALL = {
    "model.hidden_size": 64,
    "model.num_layers": 2,
    "model.intermediate_size": 128,
    "model.max_positions": 64,
    "vocabulary.size": 300,
}


def pretrained(folder, family="gpt2", **changes):
    """A language model with random weights."""
    sizes = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128}
    sizes |= {"max_positions": 48, "init_std": 0.05, **changes}
    if family == "gpt2":
        tokenizer, head = train_joint_bpe([*SOURCE, *TARGET], 300), "lm"
        config = GPT2Config(vocab_size=tokenizer.vocab_size, **sizes)
    elif family == "openai-gpt":  # as published: the only special token is <unk>
        letters = sorted({*"".join([*SOURCE, *TARGET]).replace(" ", "").lower()})
        tokens = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters)]
        backend = build_word_bpe({token: n for n, token in enumerate(tokens)}, [])
        tokenizer, head = Tokenizer(backend, special_tokens={"unk": "<unk>"}), "lm"
        config = GPTConfig(vocab_size=tokenizer.vocab_size, **sizes | {"intermediate_size": 256})
    else:
        tokenizer = train_tokenizer([*SOURCE, *TARGET] * 5, kind="wordpiece", vocab_size=120)
        config, head = BertConfig(vocab_size=tokenizer.vocab_size, is_causal=True, **sizes), "mlm"
    rng = torch.Generator().manual_seed(0)
    Model.from_config(config, tokenizer, [head], rng=rng).save(folder)
    return folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A GPT-2 that has learned the pairs by heart."""
    folder = tmp_path_factory.mktemp("decoder")
    result = cloze.finetune(
        "translate",
        pretrained(folder / "gpt"),
        [SOURCE, TARGET],
        folder / "run",
        dev=[SOURCE, TARGET],
        settings=SETTINGS,
        progress=False,
    )
    assert (result.task, result.metric, result.left_out) == ("translate", "bleu", 0)
    return cloze.load(folder / "run")


def test_it_translates_what_it_has_learned(tuned):
    assert [one.text for one in tuned.translate(SOURCE)] == TARGET
    assert tuned.translate(SOURCE[0], beam=1).text == TARGET[0]
    assert tuned.evaluate([SOURCE, TARGET]).scores["precision_1"] == pytest.approx(100)
    several = tuned.translate(SOURCE[1], beam=3, n_best=3)
    assert several.text == TARGET[1]
    scores = [one.score for one in several.candidates]
    assert scores == sorted(scores, reverse=True)
    assert {"translate", "generate", "score"} <= tuned.capabilities.keys()
    assert tuned.translate("").text == ""


def test_a_batch_is_as_single_sentences(tuned):
    together = tuned.translate(SOURCE, n_best=2)
    for text, one in zip(SOURCE, together, strict=True):
        alone = tuned.translate(text, n_best=2)
        assert [c.text for c in alone.candidates] == [c.text for c in one.candidates]
        assert alone.candidates[0].log_probability == pytest.approx(
            one.candidates[0].log_probability, abs=1e-4
        )


def test_greedy_search_is_the_argmax_of_the_whole_sequence(tuned):
    """Without a cache: every token from a forward pass over bos, source, separator, target."""
    translator, module = make_translator(tuned), tuned.module
    (source,) = translator.encode_sources(["the dog runs"])
    ids = list(source)
    while ids[-1] != translator.eos_id and len(ids) < len(source) + 10:
        with torch.no_grad():
            logits = module.logits("lm", module(torch.tensor([ids]))[:, -1])[0]
        logits[sorted(tuned.tokenizer.special_ids - {translator.eos_id})] = -torch.inf
        ids.append(int(logits.argmax()))
    tokens, state = translator.start([source])
    (found,) = beam_search(
        translator, state, tokens, BeamConfig(beam=1), eos_id=translator.eos_id, max_lengths=[10]
    )
    assert list(found[0].tokens) == [id_ for id_ in ids[len(source) :] if id_ != ids[-1]]


def test_the_separator_is_a_new_special_token(tuned, tmp_path):
    assert tuned.task.separator == "<|sep|>"
    assert tuned.tokenizer.token_to_id("<|sep|>") in tuned.tokenizer.special_ids
    assert (
        tuned.config.vocab_size
        == tuned.tokenizer.vocab_size
        == tuned.module.embeddings.word.weight.shape[0]
    )
    stored = json.loads((tuned.folder / "cloze.json").read_text())
    assert (stored["name"], stored["separator"]) == ("translate", "<|sep|>")
    assert torch.isfinite(tuned.module.embeddings.word.weight).all()


def test_a_long_source_is_truncated_and_says_so(tuned):
    long = "a dog runs and " * 40
    with pytest.warns(match="24 tokens"):
        found = tuned.translate(long)
    assert found.truncated_chars > 400
    with raises(InputError, "24", fix=("truncation", "head")):
        tuned.translate(long, truncation="error")
    with raises(InputError, "attention", fix="transformer"):
        tuned.translate("a dog runs", align=True)
    with raises(InputError, "summarize", fix="translate"):
        tuned.summarize("a dog runs")


def test_a_causal_bert_uses_its_own_separator(tmp_path):
    cloze.finetune(
        "summarize",
        pretrained(tmp_path / "bert", "bert"),
        ROWS,
        tmp_path / "run",
        dev=ROWS,
        settings=SETTINGS | {"run.steps": 40, "run.eval_every": 40},
        progress=False,
    )
    model = cloze.load(tmp_path / "run")
    assert model.task.separator == "[SEP]"
    assert model.summarize("a dog runs").text == "ein hund lauft"
    with raises(InputError, "translate", fix="summarize"):
        model.translate("a dog runs")


@pytest.mark.parametrize("task", ["translate", "summarize"])
def test_a_vocabulary_without_begin_and_end_tokens_gets_both(task, tmp_path):
    base = cloze.load(pretrained(tmp_path / "gpt", "openai-gpt"))
    assert (base.tokenizer.start_id, base.tokenizer.end_id) == (None, None)
    data = [SOURCE, TARGET] if task == "translate" else ROWS
    cloze.finetune(
        task,
        base.folder,
        data,
        tmp_path / "run",
        dev=data,
        settings=SETTINGS | {"run.steps": 80, "run.eval_every": 80},
        progress=False,
    )
    model = cloze.load(tmp_path / "run")
    tokenizer = model.tokenizer
    assert tokenizer.bos_token == tokenizer.eos_token == "<|endoftext|>"
    assert {tokenizer.bos_id, tokenizer.unk_id} < tokenizer.special_ids
    assert tokenizer.vocab_size == base.tokenizer.vocab_size + 2  # and the separator
    assert model.config.vocab_size == len(model.module.embeddings.word.weight)
    assert getattr(model, task)(SOURCE[0]).text == "ein hund lauft"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["bos_token_id"] == config["eos_token_id"] == tokenizer.eos_id
    assert cloze.score(model, "ein Hund", include_eos=True).log_probability < 0


def test_a_new_decoder_resumes_exactly(tmp_path):
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    options = {
        "recipe": "decoder-summarize",
        "dev": str(data),
        "settings": SETTINGS | SMALL | {"run.steps": 6, "run.eval_every": 3, "run.dropout": 0.1},
        "progress": False,
    }
    whole = cloze.finetune("summarize", None, str(data), tmp_path / "whole", **options)

    class Stop(cloze.Callback):
        def on_train_begin(self, run):
            self.run = run

        def on_evaluate(self, step, scores):
            if step == 3 and scores:
                self.run.request_stop()

    cloze.finetune("summarize", None, str(data), tmp_path / "parts", callbacks=Stop(), **options)
    resumed = cloze.resume(tmp_path / "parts", progress=False)
    assert resumed.scores == whole.scores
    assert {"rouge_l", "rouge_1", "rouge_2", "lead_3_rouge_l"} <= whole.scores.keys()
    one, other = (cloze.load(tmp_path / name).module.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())


def test_an_encoder_decoder_summarizes(tmp_path):
    cloze.finetune(
        "summarize",
        None,
        ROWS,
        tmp_path / "run",
        "transformer",
        dev=ROWS,
        settings={
            **{name: value for name, value in SETTINGS.items() if name != "run.dropout"},
            **{name: value for name, value in SMALL.items() if "positions" not in name},
            "model.dropout": 0.0,
        },
        progress=False,
    )
    model = cloze.load(tmp_path / "run")
    assert [one.text for one in model.summarize(SOURCE)] == TARGET
    found = model.evaluate(ROWS)
    assert found.scores["rouge_l"] > found.scores["lead_3_rouge_l"]
    assert found.kind == "summarize"
    comparison = cloze.compare({"one": model, "two": model}, ROWS)
    assert comparison.metric == "rouge_l"
    assert "lead-3 ROUGE-L" in comparison.note


@pytest.mark.parametrize("task", ["translate", "summarize", "classify"])
def test_a_model_that_does_not_exist(task, tmp_path):
    with raises(FolderError, "runs/nothere", "built-in"):
        cloze.finetune(task, "runs/nothere", ROWS, tmp_path / "run", progress=False)


def test_what_a_user_can_get_wrong(tuned, tmp_path):
    out = tmp_path / "run"
    with raises(InputError, "neither a translator nor a GPT"):
        (tmp_path / "ngram").mkdir()
        (tmp_path / "ngram" / "config.json").write_text('{"model_type": "ngram"}')
        cloze.finetune("translate", tmp_path / "ngram", [SOURCE, TARGET], out, progress=False)
    with raises(InputError, "highlights", "title", fix="--target-column"):
        cloze.finetune(
            "summarize", tuned.folder, [{"text": "a b", "title": "c"}], out, progress=False
        )
    with raises(InputError, "pairs", "list"):
        cloze.finetune("summarize", tuned.folder, [{"text": "a", "summary": " "}], out)
    with raises(InputError, "bidirectional"):
        cloze.finetune("translate", "cloze-en", [SOURCE, TARGET], out, progress=False)
    with raises(InputError, "train", fix=".jsonl"):
        cloze.finetune("summarize", tuned.folder, ["article.txt"], out, progress=False)
    with raises(ConfigError, "loss.source_weight"):
        cloze.recipe("transformer", settings={"loss.source_weight": 0.5})
    with raises(InputError, "shorter", fix="--max-length"):
        cloze.finetune(
            "translate", tuned.folder, [SOURCE, ["x y z " * 60] * 6], out, progress=False
        )


@pytest.mark.parametrize("family", ["lstm", "gpt"])
def test_characters(family, tmp_path):
    """A vocabulary of characters: spaces are tokens, and none are inserted."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["der Hund läuft", "die Katze schläft"] * 20), encoding="utf-8")
    sizes = {"model.hidden_size": 32, "model.num_layers": 1, "run.steps": 3}
    if family == "gpt":
        sizes["model.num_heads"] = 2
    cloze.pretrain(
        text,
        tmp_path / "run",
        family,
        settings=sizes | {"vocabulary.kind": "char", "vocabulary.size": 60},
        progress=False,
    )
    model = cloze.load(tmp_path / "run")
    assert model.tokenizer.kind == "char"
    found = model.generate("der Hu", seed=1, max_new_tokens=12).continuations[0]
    assert found.continuation == "".join(found.tokens)
    assert found.full_text == "der Hu" + found.continuation
    scores = model.evaluate(text).scores
    line = [len("der Hund läuft") + 1, len("die Katze schläft") + 1]
    in_bytes = sum(line) + 2  # ä has two bytes
    ratio = scores["bits_per_character"] / scores["bits_per_byte"]
    assert ratio == pytest.approx(in_bytes / sum(line))
