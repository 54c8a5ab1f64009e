"""`distill`: from a teacher and text to a student that others open; resumed runs; embedders."""

import io
import json
import re
import shutil

import numpy as np
import pytest
import torch
from rich.console import Console

import cloze
from cloze.checkpoint.model import Model
from cloze.errors import ConfigError, FolderError, InputError
from cloze.interop.sentence_transformers import Pooling
from cloze.make.distill.job import distill
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.pretrain.plan import plan
from cloze.make.recipe.complete import recipe
from cloze.make.resume import resume
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.objectives.distillation import Distillation
from cloze.report.panel import RunSummary, format_evaluation, render_panel
from helpers import Watch, raises, scramble

QUICK = ["data.hold_out=0.2", "data.workers=1", "run.device=cpu", "run.log_every=1"]
SMALL = [*QUICK, "sampling.max_length=32", "run.batch_tokens=256", "run.eval_every=4"]
TEACHER = [
    *QUICK,
    "model.hidden_size=16",
    "model.num_heads=2",
    "model.num_layers=4",
    "model.max_positions=32",
]
TEACHER += ["vocabulary.size=120", "run.batch_tokens=256", "run.steps=60", "optimizer.lr=5e-3"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Sixty little stories."""
    rng = np.random.default_rng(0)
    parts = (["the cat", "a dog", "one fish"], ["sat on", "ran from"], ["the mat", "a tree"])
    parts = (*parts, ["all day long", "for a while"])
    stories = [
        "\n".join(" ".join(rng.choice(part) for part in parts) + "." for _ in range(6))
        for _ in range(60)
    ]
    path = tmp_path_factory.mktemp("text") / "stories.txt"
    path.write_text("\n\n".join(stories))
    return path


@pytest.fixture(scope="module")
def teacher(text, tmp_path_factory):
    """A BERT of four layers that knows the stories a little."""
    out = tmp_path_factory.mktemp("models") / "teacher"
    pretrain(text, out, recipe(settings=TEACHER))
    return out


@pytest.fixture(scope="module")
def embedder(teacher, tmp_path_factory):
    """A body without heads, as sentence-transformers publishes them."""
    base = cloze.load(teacher, quiet=True)
    config = BertConfig(
        vocab_size=base.tokenizer.vocab_size,
        hidden_size=16,
        num_layers=4,
        num_heads=2,
        intermediate_size=32,
    )
    made = Model.from_config(config, base.tokenizer, rng=torch.Generator().manual_seed(5))
    scramble(made.module)
    pooling = Pooling(modes=("mean",), normalize=True, max_seq_length=20)
    return Model(module=made.module, tokenizer=made.tokenizer, config=config, pooling=pooling).save(
        tmp_path_factory.mktemp("models") / "embedder"
    )


def taught(teacher, text, out, *settings, **options):
    options.setdefault("settings", [*SMALL, "run.steps=8", *settings])
    return distill(teacher, text, out, **options)


@pytest.fixture(scope="module")
def student(teacher, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "student"
    return taught(teacher, text, out), out


def rows_of(out, kind):
    rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["kind"] == kind]


def assert_same_weights(one, other):
    ours, theirs = (cloze.load(each).module.state_dict() for each in (one, other))
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name]), name


def test_the_folder_is_a_distilbert_of_half_the_layers(student, teacher):
    ended, out = student
    assert (ended.steps, ended.stopped) == (8, None)
    model = cloze.load(out)
    assert (model.config.family, model.config.num_layers, model.task_heads) == (
        "distilbert",
        2,
        ("mlm",),
    )
    assert not model.report
    assert model.tokenizer.vocab_size == cloze.load(teacher).tokenizer.vocab_size
    assert cloze.fill(model, "the [MASK] sat on the mat.").masks[0].predictions
    (fill, *_) = json.loads((out / "fills.json").read_text())
    assert len(fill["before"]) == len(fill["after"]) == len(fill["teacher"]) == 5
    page = (out / "report.html").read_text()
    for title in ("Soft-target loss", "Cosine loss", "MLM accuracy", "teacher"):
        assert title in page


@pytest.mark.parity
@pytest.mark.parametrize("family", ["distilbert", "bert"])
def test_transformers_opens_it(family, teacher, text, tmp_path):
    import transformers

    taught(teacher, text, tmp_path / "m", "run.steps=2", family=family)
    kind = {"distilbert": "DistilBertForMaskedLM", "bert": "BertForMaskedLM"}[family]
    peer, loading = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "m", output_loading_info=True
    )
    assert type(peer).__name__ == kind
    assert not any(loading.values()), loading
    model = cloze.load(tmp_path / "m")
    ids = torch.tensor([model.tokenizer.encode("the cat [MASK] on the mat.").ids])
    with torch.no_grad():
        theirs = peer.eval()(ids).logits
        ours = model.module.logits("mlm", model.module(ids))
    assert (ours - theirs).abs().max() <= 1e-5


@pytest.fixture(scope="module")
def modern(teacher, tmp_path_factory):
    """A ModernBERT of six layers, two of them global, with the words of the other teacher."""
    words = cloze.load(teacher, quiet=True).tokenizer
    config = ModernBertConfig(
        vocab_size=words.vocab_size,
        hidden_size=16,
        num_layers=6,
        num_heads=2,
        intermediate_size=32,
        max_positions=32,
        window_size=8,
    )
    made = Model.from_config(config, words, ("mlm",), rng=torch.Generator().manual_seed(5))
    scramble(made.module)
    return made.save(tmp_path_factory.mktemp("models") / "modern")


@pytest.mark.parity
def test_a_modernbert_makes_a_modernbert(modern, text, tmp_path):
    import transformers

    ended = taught(modern, text, tmp_path / "m", "run.steps=40", "optimizer.lr=3e-3")
    first, last = (rows_of(tmp_path / "m", "eval")[n] for n in (0, -1))
    assert last["cosine_loss"] < 0.9 * first["cosine_loss"]
    assert last["mlm_loss"] < first["mlm_loss"]
    assert ended.steps == 40
    peer, loading = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "m", output_loading_info=True
    )
    assert not any(loading.values()), loading
    model = cloze.load(tmp_path / "m")
    assert (model.config.family, model.config.num_layers, model.task_heads) == (
        "modernbert",
        3,
        ("mlm",),
    )
    assert (
        cloze.load(modern).config.global_attention_every == model.config.global_attention_every == 3
    )
    ids = torch.tensor([model.tokenizer.encode("the cat [MASK] on the mat.").ids])
    with torch.no_grad():
        theirs = peer.eval()(ids).logits
        ours = model.module.logits("mlm", model.module(ids))
    assert (ours - theirs).abs().max() <= 1e-4


def test_the_teacher_is_measured_beside_the_student(student, teacher):
    ended, out = student
    rows = rows_of(out, "eval")
    assert [row["step"] for row in rows] == [0, 4, 8]
    assert len({row["teacher_accuracy"] for row in rows}) == 1
    assert ended.scores["teacher_accuracy"] == rows[0]["teacher_accuracy"]
    assert ended.scores["teacher_accuracy"] > ended.scores["unigram_baseline"]
    assert {"soft_loss", "cosine_loss", "mlm_loss", "mlm_accuracy", "perplexity"} <= set(rows[0])
    assert rows[0]["soft_loss"] > 0


def test_the_display_tells_of_the_teacher(student):
    seen = RunSummary()
    for kind in ("train", "eval"):
        seen.add(rows_of(student[1], kind)[-1])
    assert re.search(r"teacher \S+\s% · cosine loss 0\.\d+", format_evaluation(seen))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render_panel(seen, title="m", width=88))
    shown = console.export_text()
    for words in ("soft-target loss", "cosine loss", "MLM loss", "teacher"):
        assert words in shown


@pytest.mark.parametrize("fast", ["true", "false"])  # batches made on the device, or on the host
def test_a_student_with_all_layers_begins_as_its_teacher(fast, teacher, text, tmp_path):
    taught(teacher, text, tmp_path / "m", "run.steps=1", f"run.fast={fast}", num_layers=4)
    first = rows_of(tmp_path / "m", "eval")[0]
    assert first["soft_loss"] == pytest.approx(0, abs=1e-5)
    assert first["cosine_loss"] == pytest.approx(0, abs=1e-5)
    assert first["mlm_accuracy"] == first["teacher_accuracy"]


@pytest.mark.parametrize("fast", ["true", "false"])
def test_losses_fall(fast, teacher, text, tmp_path):
    wild = cloze.load(teacher)
    scramble(wild.module)  # a net whose every layer matters
    wild.save(tmp_path / "wild")
    options = ["run.steps=60", "optimizer.lr=3e-3", f"run.fast={fast}"]
    taught(tmp_path / "wild", text, tmp_path / "m", *options)
    first, last = (rows_of(tmp_path / "m", "eval")[n] for n in (0, -1))
    assert last["soft_loss"] < 0.7 * first["soft_loss"]
    assert last["cosine_loss"] < 0.7 * first["cosine_loss"]
    assert last["mlm_loss"] < first["mlm_loss"]


def killed_run(teacher, text, out, *settings):
    class Killed(BaseException):
        pass

    def kill_after_five(step):
        if step == 5:
            raise Killed

    watch = Watch(step=kill_after_five)
    with pytest.raises(Killed):
        taught(teacher, text, out, "run.save_every=3", *settings, callbacks=[watch])


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(student, teacher, text, tmp_path):
    killed_run(teacher, text, tmp_path / "run")
    saved = next((tmp_path / "run" / "state").iterdir())
    assert not any("teacher" in path.name for path in saved.iterdir())
    assert resume(tmp_path / "run").steps == 8
    assert_same_weights(student[1], tmp_path / "run")
    assert [row["step"] for row in rows_of(tmp_path / "run", "train")] == list(range(1, 9))
    assert [row["step"] for row in rows_of(tmp_path / "run", "eval")] == [0, 4, 8]


def test_a_stopped_run_on_the_fast_path_goes_on_exactly(teacher, text, tmp_path):
    taught(teacher, text, tmp_path / "whole", "run.fast=true")
    killed_run(teacher, text, tmp_path / "run", "run.fast=true")
    assert resume(tmp_path / "run").steps == 8
    assert_same_weights(tmp_path / "whole", tmp_path / "run")


def test_a_teacher_may_move_but_not_change(student, teacher, text, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(teacher, moved)
    killed_run(moved, text, tmp_path / "run")
    shutil.rmtree(moved)
    with raises(FolderError, "moved"):
        resume(tmp_path / "run")
    other = cloze.load(teacher)
    scramble(other.module)
    other.save(tmp_path / "other")
    with raises(FolderError, "run", "teacher"):
        resume(tmp_path / "run", settings=[f'distill.teacher="{tmp_path / "other"}"'])
    resume(tmp_path / "run", settings=[f'distill.teacher="{teacher}"'])
    assert_same_weights(student[1], tmp_path / "run")


@pytest.mark.parametrize("family", ["distilbert", "bert"])
def test_an_embedder_teaches_its_vectors(family, embedder, text, tmp_path):
    said = []
    settings = ["run.steps=60", "optimizer.lr=3e-3"]
    watch = [Watch(log=said.append)]
    ended = taught(embedder, text, tmp_path / "m", *settings, family=family, callbacks=watch)
    assert any("no masked-LM head" in line for line in said)
    assert set(ended.scores) == {"cosine_loss"}
    first, last = (rows_of(tmp_path / "m", "eval")[n] for n in (0, -1))
    assert last["cosine_loss"] < 0.7 * first["cosine_loss"]
    model, base = cloze.load(tmp_path / "m"), cloze.load(embedder)
    assert (model.pooling, model.max_length, model.task_heads) == (base.pooling, 20, ())
    texts = ["the cat sat on the mat.", "a dog ran from a tree."]
    ours, theirs = cloze.embed(model, texts), cloze.embed(base, texts)
    assert np.linalg.norm(ours, axis=1) == pytest.approx(1, abs=1e-5)
    assert (ours * theirs).sum(1).min() > 0.8
    assert not (tmp_path / "m" / "fills.json").exists()


def test_nothing_is_masked_for_an_embedder(embedder, text, tmp_path, monkeypatch):
    seen, call = [], Distillation.__call__

    def looked_at(objective, model, batch, rng=None):
        seen.append(batch)
        return call(objective, model, batch, rng)

    monkeypatch.setattr(Distillation, "__call__", looked_at)
    taught(embedder, text, tmp_path / "m", "run.steps=1")
    masked = cloze.load(embedder).tokenizer.mask_id
    assert seen
    assert all(masked not in batch.input_ids and not len(batch.masked_positions) for batch in seen)


def test_a_plan_of_it(teacher, text, tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 0.1)
    settings = [*SMALL, "run.steps=10", f'distill.teacher="{teacher}"']
    made = plan(text, tmp_path / "m", recipe("distill", settings=settings))
    assert made.vocabulary == cloze.load(teacher).tokenizer.vocab_size


def test_the_written_recipe_is_complete(student, teacher, text):
    made = recipe(student[1] / "recipe.toml")
    assert made.distill is not None
    assert (made.distill.teacher, made.distill.temperature) == (str(teacher), 2.0)
    assert made.data.sources == (str(text),)


# What a user can get wrong; nothing of it leaves a folder behind


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 9}, ("9", "layers", "teacher", "4")),
        ({"family": "gpt"}, ("distill.family", "gpt")),
        ({"temperature": 0.0}, ("temperature", "0.0")),
        ({"settings": ["distill.soft_weight=-1.0"]}, ("distill.soft", "-1.0")),
        ({"settings": ["sampling.pairs=nsp"]}, ("sampling.pairs", "nsp")),
        ({"settings": ["model.init_from=x"]}, "model"),
        ({"settings": ["vocabulary.extra_tokens=3"]}, "vocabulary"),
        ({"pairs": "nsp"}, ("sampling.pairs", "nsp")),
        ({"preset": "tiny"}, ("preset", "distill")),
    ],
)
def test_what_cannot_be_asked(options, message, teacher, text, tmp_path):
    with raises(ConfigError, message):
        taught(teacher, text, tmp_path / "m", **options)
    assert not (tmp_path / "m").exists()


def test_a_teacher_that_is_not_there(text, tmp_path):
    with raises(FolderError, "nobody"):
        taught(tmp_path / "nobody", text, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_no_text(teacher, tmp_path):
    with raises(InputError, "text"):
        taught(teacher, [], tmp_path / "m")


def test_a_recipe_that_names_no_teacher(text, tmp_path):
    made = recipe("distill", settings=[*SMALL, "run.steps=1"])
    with raises(ConfigError, "teacher", fix="TEACHER"):
        plan(text, tmp_path / "m", made)
