"""Plausible mistakes: each ends with an error that names what is wrong and what to do instead."""

import json
import shutil
import sys
import types
from pathlib import Path

import pytest

import cloze
from cloze.cli.app import COMMANDS
from cloze.errors import FolderError
from helpers import check_mentions, raises

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
MODELS = {
    "films": "bert_sequence",
    "ner": "bert_token",
    "squad": "bert_span",
    "swag": "bert_choice",
    "bert": "bert_mlm_nsp",
    "ngram": "ngram",
    "words": "word2vec",
    "lstm": "lstm",
    "en-de": "transformer_post",
}
CLASSIFY, TAG, ANSWER, CHOOSE = "<TAB>positive", "London B-LOC", "answer_start", '"options": ['


def tune(task: str, train: str, *more: str, model: str = "runs/bert") -> list[str]:
    return ["finetune", task, model, "--train", train, "--out", "new", *more]


FILL = "The [MASK] sat."
PRETRAIN = ["pretrain", "--out", "new", "--steps", "1"]
# The arguments, what the error names, and what its fix names. Exit code 2 (usage) has no fix.
MISTAKES: list[tuple[list[str], list[str], list[str]]] = [
    # names of models
    (["fill", "runs/flims", FILL], ["runs/flims"], ["runs/films"]),
    (["fill", "run/films", FILL], ["run/films"], ["runs/films"]),
    (["fill", "./films", FILL], ["./films"], ["runs/films"]),
    (["fill", "runs\\films", FILL], ["runs\\films"], ["runs/films"]),
    (["fill", "~/nothing-here", FILL], ["~/nothing-here"], ["folder", "cloze-en"]),
    (["fill", "a/b/c", FILL], ["a/b/c"], ["folder", "cloze-en"]),
    (["fill", "models/bert", FILL], ["models/bert"], ["runs/bert"]),
    (["fill", "/nothing/here", FILL], ["/nothing/here"], ["folder"]),
    (["fill", "notes/bert-small", FILL], ["notes/bert-small"], ["rename", "notes"]),
    (["info", "films"], ["films"], ["runs/films"]),
    (["compare", "runs/bert", "cloze-en", "text.txt"], ["masked"], ["--pair-column"]),
    (["tokenize", "runs/flims", "a"], ["runs/flims"], ["runs/films"]),
    (["fill", "runs", FILL], ["runs", "contains models"], ["runs/bert", "runs/films"]),
    (["fill", "notes", FILL], ["notes", "config.json"], ["model folder"]),
    (["fill", "runs/bert/model.safetensors", FILL], ["one file"], ["runs/bert"]),
    (["info", "runs/bert/config.json"], ["one file"], ["runs/bert"]),
    (["fill", "", FILL], ["empty"], ["cloze-en"]),
    (["fill", "cloze_en", FILL], ["cloze_en"], ["cloze-en"]),
    (["fill", "Cloze-Eng", FILL], ["Cloze-Eng"], ["cloze-en"]),
    (["fill", "bert-base-uncased", FILL], ["bert-base-uncased"], ["google-bert/bert-base-uncased"]),
    (["fill", "bert-base-uncase", FILL], ["uncase"], ["google-bert/bert-base-uncased"]),
    (["embed", "all-MiniLM-L6-v2", "a"], ["MiniLM"], ["sentence-transformers/all-MiniLM-L6-v2"]),
    (["tokenize", "roberta-base", "a"], ["roberta-base"], ["FacebookAI/roberta-base"]),
    (["suggest", "gpt2", "a"], ["gpt2"], ["openai-community/gpt2"]),
    (["fill", "https://huggingface.co/org/name", FILL], ["address"], ["org/name"]),
    (["fill", "some-org/some-name", FILL], ["some-org/some-name", "HF_HUB_OFFLINE"], ["folder"]),
    # swapped arguments
    (["fill", FILL, "cloze-en"], [FILL], ["model first"]),
    (["fill", FILL], [FILL], ["model first"]),
    (["evaluate", "films.tsv", "runs/films"], ["films.tsv", "data"], ["model first"]),
    (["evaluate", "text.txt", "cloze-en"], ["text.txt"], ["model first"]),
    (["compare", "films.tsv", "runs/films", "runs/films"], ["films.tsv"], ["model first"]),
    (["distill", "films.tsv", "runs/bert", "--out", "new"], ["films.tsv"], ["model first"]),
    (["export", "runs/ngram", "arpa", "new"], ["runs/ngram"], ["arpa runs/ngram"]),
    (tune("cloze-en", "films.tsv", model="classify"), ["cloze-en"], ["classify cloze-en"]),
    (tune("classify", "runs/bert", model="films.tsv"), ["films.tsv"], ["model first"]),
    ([*PRETRAIN, "cloze-en", "text.txt"], ["cloze-en"], ["--init-from"]),
    # names of tasks, formats, commands and options
    (tune("ner", "ner.conll"), ["ner"], ["tag"]),
    (tune("sentiment", "films.tsv"), ["sentiment"], ["classify"]),
    (tune("question_answering", "squad.json"), ["question_answering"], ["answer"]),
    (tune("clasify", "films.tsv"), ["clasify"], ["classify"]),
    (["export", "onnx", "runs/ngram", "new"], ["onnx", "n-gram"], ["arpa"]),
    (["export", "huggingface", "runs/ngram", "new"], ["n-gram"], ["arpa"]),
    (["train", "cloze-en"], ["train", "finetune", "pretrain"], []),
    (["predict", "cloze-en", "a"], ["predict", "classify"], []),
    (["eval", "cloze-en", "a"], ["evaluate"], []),
    (tune("classify", "films.tsv", "--learning-rate", "1e-4"), ["--learning-rate", "--lr"], []),
    (tune("classify", "films.tsv", "--output_dir", "x"), ["--output_dir", "--out"], []),
    (tune("classify", "films.tsv", "--epoch", "2"), ["--epoch", "--epochs"], []),
    (tune("classify", "films.tsv", "--lr", "abc"), ["--lr", "'abc' is not a number"], []),
    (tune("classify", "films.tsv", "--batch-size", "1.5"), ["'1.5' is not a whole number"], []),
    (
        tune("classify", "films.tsv", "--schedule", "cosin"),
        ["--schedule", "'cosin' is not one of linear, cosine", "did you mean cosine?"],
        [],
    ),
    (tune("classify", "films.tsv", "--set", "epochs=2"), ["epochs"], ["run.epochs"]),
    (["finetune", "tag", "cloze-en", "films.tsv", "--out", "x"], ["films.tsv", "--train"], []),
    (["pretrain", "text.txt", "--steps", "1"], ["--out"], []),
    (tune("classify", "films.tsv", "--recipe", "laptop"), ["laptop", "classify"], ["finetune"]),
    (["demo", "--out", "new", "--minutes", "0"], ["minutes", "0.0"], ["above 0"]),
    (["pretrain", "text.txt", "--out", "new", "--recipe", "laptopp"], ["laptopp"], ["laptop"]),
    (["pretrain", "text.txt", "--out", "new", "--family", "bertt"], ["bertt"], ["bert"]),
    (["fill", "cloze-en", "a [MASK]", "--device", "gpu"], ["gpu"], ["cuda"]),
    # functions that a model does not support
    (["classify", "runs/ner", "a"], ["classify", "token"], ["finetune classify", "tag"]),
    (["classify", "runs/squad", "a"], ["classify", "span"], ["finetune classify", "answer"]),
    (["fill", "runs/ngram", FILL], ["fill", "n-gram"], ["cloze-en", "suggest"]),
    (["generate", "runs/bert", "a"], ["generate", "bidirectional"], ["language model", "fill"]),
    (["similar", "runs/bert", "cat"], ["word vectors"], ["word vectors", "embed"]),
    (["translate", "runs/lstm", "a"], ["translate"], ["finetune translate", "generate"]),
    (["tokenize", "runs/words", "a"], ["tokenize"], ["similar"]),
    (tune("classify", "films.tsv", model="runs/ngram"), ["runs/ngram"], ["encoder", "suggest"]),
    (["compare", "runs/films", "runs/ner", "films.tsv"], ["classify", "tag"], ["same task"]),
    (["fill", "cloze-en", "The cat sat."], ["[MASK]", "The cat sat."], ["[MASK]"]),
    # data of another task
    (tune("classify", "squad.json"), ["squad.json", "classify", "questions"], [CLASSIFY, "answer"]),
    (tune("classify", "ner.conll"), ["ner.conll", "classify", "tags"], [CLASSIFY, "tag"]),
    (tune("classify", "swag.jsonl"), ["swag.jsonl", "classify", "options"], [CLASSIFY, "choose"]),
    (tune("classify", "text.txt"), ["text.txt:1", "label"], [CLASSIFY]),
    (tune("tag", "films.tsv"), ["films.tsv", "tag", "labels"], [TAG, "classify"]),
    (tune("tag", "squad.json"), ["squad.json", "tag", "questions"], [TAG, "answer"]),
    (tune("tag", "text.txt"), ["text.txt", "tag", "without labels"], [TAG]),
    (tune("answer", "ner.conll"), ["ner.conll", "answer", "tags"], [ANSWER, "tag"]),
    (tune("answer", "films.tsv"), ["films.tsv", "answer", "labels"], [ANSWER, "classify"]),
    (tune("answer", "text.txt"), ["text.txt", "answer", "without labels"], [ANSWER]),
    (tune("choose", "films.tsv"), ["films.tsv", "choose", "labels"], [CHOOSE, "classify"]),
    (tune("choose", "squad.json"), ["squad.json", "choose", "questions"], [CHOOSE, "answer"]),
    (["evaluate", "runs/films", "squad.json"], ["squad.json", "classify"], [CLASSIFY]),
    (["evaluate", "runs/ner", "films.tsv"], ["films.tsv", "tag"], [TAG]),
    (["evaluate", "runs/squad", "ner.conll"], ["ner.conll", "answer"], [ANSWER]),
    (["evaluate", "runs/swag", "films.tsv"], ["films.tsv", "choose"], [CHOOSE]),
    (["evaluate", "runs/films", "text.txt"], ["text.txt:1", "label"], [CLASSIFY]),
    (["evaluate", "runs/words", "text.txt"], ["text.txt:1"], ["analogies"]),
    (["evaluate", "runs/en-de", "text.txt"], ["two files"], ["source"]),
    (["score", "runs/bert", "films.tsv", "--minimal-pairs"], ["films.tsv"], ["sentence_good"]),
    (["finetune", "translate", "--train", "text.txt", "--out", "new"], ["two files"], ["--train"]),
    # models and missing files as data
    ([*PRETRAIN, "runs/films"], ["runs/films", "model"], ["data"]),
    ([*PRETRAIN, "runs"], ["runs", "models"], ["data"]),
    (tune("classify", "runs/films"), ["runs/films", "model"], ["data"]),
    (["evaluate", "runs/films", "runs"], ["runs", "models"], ["data"]),
    (["vocabulary", "runs/films", "--out", "new"], ["runs/films", "model"], ["data"]),
    (["evaluate", "runs/words", "runs/words"], ["runs/words", "folder"], ["analogies"]),
    (tune("classify", "flims.tsv"), ["flims.tsv"], ["films.tsv"]),
    (["evaluate", "runs/films", "./flims.tsv"], ["flims.tsv"], ["./films.tsv"]),
    (["fill", "cloze-en", "--file", "tex.txt"], ["tex.txt"], ["text.txt"]),
    ([*PRETRAIN, "txt/*.txt"], ["txt/*.txt"], ["pattern"]),
    (tune("classify", "films.tsv", "--label-column", "stars"), ["stars"], ["label"]),
    (["glue", "runs/bert", "--data", "runs", "--out", "new"], ["runs", "GLUE"], ["SST-2"]),
    (["report", "notes"], ["notes"], ["metrics.jsonl"]),
    (tune("classify", "films.tsv", "--out", "runs/films"), ["runs/films", "exists"], ["--force"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder such as a user has: models in runs/, data beside it."""
    folder = tmp_path_factory.mktemp("workspace")
    for name, golden in MODELS.items():
        shutil.copytree(GOLDEN / golden / "model", folder / "runs" / name)
    (folder / "notes").mkdir()
    (folder / "notes" / "todo.md").write_text("nothing")
    rows = "".join(f"a fine film {number}\t{number % 2}\n" for number in range(12))
    question = {
        "id": "1",
        "question": "Who slept?",
        "answers": [{"text": "dog", "answer_start": 4}],
    }
    paragraph = {"context": "The dog slept.", "qas": [question]}
    choice = {"context": "She opened the door", "options": ["and left", "and flew"], "label": 0}
    files = {
        "films.tsv": f"text\tlabel\n{rows}",
        "ner.conll": "Ada B-PER\nlived O\nin O\nLondon B-LOC\n\n" * 6,
        "squad.json": json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}),
        "swag.jsonl": f"{json.dumps(choice)}\n" * 6,
        "text.txt": "The cat sat on the mat.\nThe dog slept.\n" * 40,
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("arguments", "names", "fix"), MISTAKES, ids=[" ".join(one[0]) for one in MISTAKES]
)
def test_a_mistake_is_explained(arguments, names, fix, workspace, monkeypatch, run):
    monkeypatch.chdir(workspace)
    before = sorted(workspace.rglob("*"))
    ran = run(*arguments, COLUMNS="200", HF_HUB_OFFLINE="1", NO_COLOR="1")
    assert ran.returncode == (1 if fix else 2), ran.stderr
    problem, _, found = ran.stderr.partition("\nfix:")
    check_mentions(problem, *names)
    check_mentions(found, *fix)
    assert "Traceback" not in ran.stderr
    assert sorted(workspace.rglob("*")) == before


def test_the_name_of_a_file_is_a_text_with_a_warning(workspace, monkeypatch, run):
    monkeypatch.chdir(workspace)
    ran = run("classify", "runs/films", "films.tsv")
    assert ran.returncode == 0
    check_mentions(ran.stderr, "warning", "--file films.tsv")
    assert "warning" not in run("classify", "runs/films", "a fine film.").stderr


class RepositoryNotFoundError(Exception):
    pass


class GatedRepoError(RepositoryNotFoundError):
    pass


class LocalEntryNotFoundError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "names", "fix"),
    [
        (LocalEntryNotFoundError("a\nb"), ["cannot be reached"], ["network"]),
        (
            RepositoryNotFoundError("401\nmany lines"),
            ["no public model"],
            ["name", "hf auth login"],
        ),
        (GatedRepoError("403"), ["terms"], ["https://huggingface.co/org/name"]),
        (OSError("disk full\nand more"), ["disk full"], ["folder"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failed_download_is_one_sentence(error, names, fix, tmp_path, monkeypatch):
    def fail(*_arguments, **_options):
        raise error

    client = types.SimpleNamespace(snapshot_download=fail)
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with raises(FolderError, "org/name", *names, fix=fix) as caught:
        cloze.load("org/name")
    assert "\n" not in caught.value.problem


def test_a_model_in_the_cache_is_found_beside_a_folder_of_its_organization(tmp_path, monkeypatch):
    model = tmp_path / "cache" / "models--org--name"
    shutil.copytree(GOLDEN / "bert_mlm_nsp" / "model", model / "snapshots" / "1")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("1")
    (tmp_path / "org").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    assert cloze.info("org/name").family == "bert"


def test_synonyms_of_commands_are_no_commands():
    from cloze.cli.app import _SYNONYMS

    assert not _SYNONYMS.keys() & COMMANDS.keys()
    assert all(any(f"'{name}'" in meant for name in COMMANDS) for meant in _SYNONYMS.values())
