"""Commands for language models, word vectors and translators, as a user runs them."""

import json

import pytest
from typer.testing import CliRunner

import cloze
from cloze.cli.app import app
from grams import TEXT
from helpers import check_mentions
from translators import TEXTS

WORDS = ("--set", "vocabulary.kind=spaced", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("language")
    (made / "text.txt").write_text("".join(f"{line}\n" for line in TEXT * 3), encoding="utf-8")
    (made / "dev.txt").write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    for side in ("en", "de"):
        (made / f"pairs.{side}").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def models(run, folder):
    """An n-gram model and an LSTM, made by the command."""
    counted = run(
        "pretrain", folder / "text.txt", "--family", "ngram", "--out", folder / "ngram", *WORDS
    )
    assert counted.returncode == 0, counted.stderr
    assert "1-grams\t13" in counted.stdout
    tiny = (
        "--set",
        "model.hidden_size=8",
        "--set",
        "model.embedding_size=8",
        "--set",
        "run.batch_size=4",
    )
    learned = run(
        *("pretrain", folder / "text.txt", "--family", "lstm", "--out", folder / "lstm", *WORDS),
        *("--dev", folder / "dev.txt", "--steps", "3", "--max-length", "6", "--seed", "1", *tiny),
    )
    assert learned.returncode == 0, learned.stderr
    assert "perplexity\t" in learned.stdout
    return folder / "ngram", folder / "lstm"


def test_judged_and_compared(run, folder, models):
    judged = run("evaluate", models[1], folder / "dev.txt", "--json")
    assert judged.returncode == 0, judged.stderr
    perplexity = json.loads(judged.stdout)["scores"]["perplexity"]
    table = run("compare", *models, folder / "dev.txt")
    assert table.returncode == 0, table.stderr
    header, first, second = (line.split("\t") for line in table.stdout.splitlines())
    assert header[5:8] == ["perplexity", "word perplexity", "bits per byte"]
    assert (first[1], second[1]) == ("ngram", "lstm")
    assert second[5] == f"{perplexity:.2f}"


def test_written_told_and_refused(run, models):
    written = run(
        "generate", models[1], "the cat", "--samples", "2", "--max-new-tokens", "4", "--no-stop"
    )
    assert written.returncode == 0, written.stderr
    assert [len(line.split()) for line in written.stdout.splitlines()] == [6, 6]
    told = run("info", models[1])
    check_mentions(told.stdout, "recurrent language model (lstm)")
    assert "\ngenerate\t" in told.stdout
    wrong = run("fill", models[0], "the [MASK]")
    assert wrong.returncode == 1
    check_mentions(wrong.stderr, "n-gram", "suggest, generate, score, evaluate")


def test_a_text_is_generated_from_nothing(process, models):
    asked = ["generate", str(models[1]), "--max-new-tokens", "4", "--no-stop"]
    ran = process(*asked)  # standard input is empty
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == process(*asked, "").stdout


@pytest.mark.parametrize(
    "flag", ["--temperature=2", "--top-k=5", "--top-p=0.9", "--min-p=0.1", "--beam=2"]
)
def test_greedy_has_nothing_to_draw(models, flag):
    asked = ["generate", str(models[0]), "the cat", "--max-new-tokens", "2", "--greedy"]
    ran = CliRunner().invoke(app, [*asked, flag])
    assert (ran.exit_code, ran.stdout) == (1, "")
    name = flag.strip("-").partition("=")[0]
    check_mentions(ran.stderr, name, "--greedy")
    assert CliRunner().invoke(app, [*asked, "--temperature=0"]).exit_code == 0


def test_generated_by_beams_up_to_a_stop_string_and_in_a_stream(run, models):
    asked = ["generate", models[1], "the cat", "--max-new-tokens", "6", "--no-stop"]
    options = {"max_new_tokens": 6, "stop": False}
    ran = run(*asked, "--beam", "3", "--n-best", "2", "--length-penalty", "0.5", "--json")
    found = json.loads(ran.stdout)["continuations"]
    expected = cloze.generate(models[1], "the cat", beam=3, n_best=2, length_penalty=0.5, **options)
    assert [one["tokens"] for one in found] == [list(one.tokens) for one in expected]
    assert [one["finish_reason"] for one in found] == ["length"] * 2
    (whole,) = cloze.generate(models[1], "the cat", **options)
    end = whole.continuation[4:6]
    ran = run(*asked, "--stop-string", "never met", "--stop-string", end, "--include-stop-string")
    assert ran.stdout.rstrip("\n").endswith(end)
    assert whole.full_text.startswith(ran.stdout.rstrip("\n"))
    assert run(*asked, "--stream").stdout == f"{whole.full_text}\n"
    for more in (["--json"], ["--samples", "2"], ["the dog"], ["--beam", "2"]):
        ran = run(*asked, "--stream", *more)
        assert ran.returncode == 1
        check_mentions(ran.stderr, "--stream", "one sample of one text")


def test_contradictions_are_found_before_a_model_is_loaded(run):
    for more, said in (
        (["--beam", "2", "--top-p", "0.5"], ["top_p", "beam"]),
        (["--stop-string", ""], ["stop string", "empty"]),
        (["--include-stop-string"], ["include_stop_string", "--stop-string"]),
    ):
        ran = run("generate", "nowhere", "the", *more)
        assert ran.returncode == 1
        check_mentions(ran.stderr, *said)


def test_a_flag_that_a_kind_does_not_know(run, folder):
    out = folder / "x"
    ran = run("pretrain", folder / "text.txt", "--family", "ngram", "--out", out, "--steps", "1")
    assert ran.returncode == 2
    check_mentions(ran.stderr, "--steps", "ngram")
    assert not out.exists()


def test_going_on_with_new_text(folder, models):
    counted, lstm = map(str, models)
    asked = ["pretrain", str(folder / "dev.txt"), "--out", str(folder / "on"), "--steps", "2"]
    ran = CliRunner().invoke(app, [*asked, "--init-from", lstm, "--quiet", "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["steps"] == 2
    for more in ([], ["--family", "ngram"]):
        ran = CliRunner().invoke(app, [*asked[:-2], *more, "--init-from", counted])
        assert ran.exit_code == 1
        check_mentions(ran.output, "n-gram", "text")


def test_the_report_of_a_run_is_drawn_again(run, models):
    page = models[1] / "report.html"
    page.unlink()
    made = run("report", models[1], "--title", "Mine")
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip() == str(page)
    assert "<h1>Mine</h1>" in page.read_text(encoding="utf-8")
    wrong = run("report", models[1] / "nowhere")
    assert wrong.returncode == 1
    check_mentions(wrong.stderr, models[1] / "nowhere", "folder")


def test_a_run_is_resumed_by_any_command(run, models):
    again = run("finetune", "--resume", "--out", models[1], "--json", "--quiet")
    assert again.returncode == 0, again.stderr


def test_a_run_is_resumed(run, models):
    again = run("pretrain", "--resume", "--out", models[1], "--json", "--quiet", "--threads", "1")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["steps"] == 3


def test_one_thread_learns_the_same_vectors_twice(run, folder):
    sizes = ("model.hidden_size=8", "run.epochs=2", "vocabulary.min_count=1")
    settings = [part for one in sizes for part in ("--set", one)]
    made = []
    for name in ("one", "two"):
        out = folder / f"words-{name}"
        flags = ("--family", "word2vec", "--threads", "1", "--seed", "3", "--quiet")
        ran = run("pretrain", folder / "text.txt", "--out", out, *flags, *settings)
        assert ran.returncode == 0, ran.stderr
        told = json.loads((out / "config.json").read_text())["training"]["run"]
        assert (told["threads"], told["seed"]) == (1, 3)
        made.append((out / "model.safetensors").read_bytes())
    assert made[0] == made[1]


def test_a_translator_from_two_files(run, folder):
    sides = (folder / "pairs.en", folder / "pairs.de")
    tiny = ("hidden_size=8", "num_layers=1", "num_heads=2", "intermediate_size=8")
    sizes = [part for one in tiny for part in ("--set", f"model.{one}")]
    made = run(
        *("finetune", "translate", "--train", *sides, "--dev", *sides, "--out", folder / "mt"),
        *("--steps", "2", "--set", "vocabulary.size=280", "--quiet", *sizes),
    )
    assert made.returncode == 0, made.stderr
    assert "BLEU\t" in made.stdout
    check_mentions(made.stdout, "best", "step")
    judged = run("evaluate", folder / "mt", *sides, "--beam", "1", "--quiet")
    assert judged.returncode == 0, judged.stderr
    assert "signature\tnrefs:1|case:mixed" in judged.stdout
    alone = run(
        *("finetune", "translate", "--train", *sides, "--out", folder / "mt2", "--steps", "1"),
        *("--set", "vocabulary.size=280", "--quiet", *sizes),
    )
    check_mentions(alone.stdout, "last")
    assert "best" not in alone.stdout
    onward = run(
        *("finetune", "translate", folder / "mt", "--train", *sides, "--out", folder / "mt3"),
        *("--steps", "1", "--quiet"),
    )
    assert onward.returncode == 0, onward.stderr
    table = run("compare", folder / "mt", folder / "mt2", *sides, "--quiet", "--resamples", "50")
    assert table.returncode == 0, table.stderr
    header, first, second = (line.split("\t") for line in table.stdout.splitlines())
    assert header[2:4] == ["BLEU", "difference to the first"]
    assert "[" in first[2]
    assert second[3].endswith("]")
    wrong = run("compare", folder / "mt", folder / "mt2", sides[0])
    check_mentions(wrong.stderr, "translator", "two files", "1")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--train", "a.en"], 1, ("train", "two files")),
        (["--train", "a.en", "a.de", "--dev", "b.en"], 1, ("dev", "two files")),
        (["--train", "a.en", "a.de", "--pooling", "cls"], 2, ("--pooling", "translat")),
        (["runs/bert", "--train", "a.en", "a.de"], 1, ("no folder", "runs/bert")),
        (["seq2seq", "--train", "a.en", "a.de"], 1, ("no folder", "--recipe seq2seq")),
    ],
)
def test_what_a_translator_is_not_told(arguments, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "a.de", "b.en"):
        (tmp_path / name).write_text("a\n", encoding="utf-8")
    ran = CliRunner().invoke(app, ["finetune", "translate", *arguments, "--out", "nowhere"])
    assert ran.exit_code == code
    check_mentions(ran.output, said)


def test_a_recipe_that_makes_no_translator(run, tmp_path):
    sides = (tmp_path / "a.en", tmp_path / "a.de")
    asked = ("finetune", "translate", "--recipe", "finetune", "--train", *sides)
    ran = run(*asked, "--out", tmp_path / "x")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "recipe", "finetune", "transformer, transformer-base, seq2seq")


@pytest.mark.parametrize(
    ("verb", "names"),
    [
        (
            "finetune",
            (
                "for translate and summarize: transformer, transformer-base, seq2seq, decoder",
                "summarize: none",
                "the task's",
            ),
        ),
        ("pretrain", ("ngram, nnlm, lstm, awd-lstm, elmo, word2vec, gpt", "or a TOML file")),
        ("pretrain", ("LSTM: learning rate of a layer", "RETRO: folder of a database")),
        ("pretrain", ("CLIP, diffusion: encoder of captions", "NNLM, LSTM, ELMo: text for")),
    ],
)
def test_help_names_the_recipes_of_all_kinds_and_whose_an_option_is(run, verb, names):
    shown = " ".join(run(verb, "--help", COLUMNS="400").stdout.split())
    for name in names:
        assert name in shown


def test_one_line_is_too_little_to_learn_and_be_judged_by(run, tmp_path):
    (tmp_path / "one.txt").write_text("the cat sat\n", encoding="utf-8")
    ran = run("pretrain", tmp_path / "one.txt", "--family", "nnlm", "--out", tmp_path / "x")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "line", "--dev")


def test_a_file_for_others(run, folder, models):
    made = run("export", "arpa", models[0], folder / "x.arpa")
    assert made.returncode == 0, made.stderr
    assert (folder / "x.arpa").read_text(encoding="utf-8").startswith("\\data\\")
    ran = CliRunner().invoke(app, ["export", "word2vec", str(models[0]), str(folder / "x.bin")])
    assert ran.exit_code == 1
    labelled = ["evaluate", str(models[0]), str(folder / "dev.txt"), "--label-column", "a"]
    ran = CliRunner().invoke(app, labelled)
    assert ran.exit_code == 1
    check_mentions(ran.output, "label_column")
    ran = CliRunner().invoke(app, [*labelled[:3], "--worst", "3"])
    assert ran.exit_code == 1
    check_mentions(ran.output, "worst")
