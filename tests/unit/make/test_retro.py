"""Training RETRO: database, neighbors, batches, resuming, RETROfit; then what it is used for."""

import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cloze
from cloze.cli.app import app
from cloze.data.shards import read_arrays
from cloze.errors import ClozeError, ConfigError, InputError
from cloze.make import build_database as build
from cloze.make.pretrain import retro
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import complete_pretraining
from cloze.make.recipe.retro import RetroRecipe
from cloze.make.resume import resume
from cloze.models.retro import Retro
from cloze.retrieval.chunk_database import ChunkDatabase
from cloze.tasks.chunk_retriever import embed_chunks
from helpers import files_of, raises, tiny_model
from retrieving import some_neighbors
from smallruns import metrics

SMALL = [
    "model.preset=tiny",
    "model.hidden_size=16",
    "model.max_positions=34",
    "retrieval.chunk_length=8",
    "vocabulary.size=300",
    "sampling.max_length=34",
    "run.batch_tokens=136",
    "data.hold_out=0.2",
    "data.workers=1",
    "run.steps=4",
    "run.eval_every=2",
    "run.log_every=1",
    "run.device=cpu",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A file with 40 documents, two of them equal, and a small encoder for the keys."""
    folder = tmp_path_factory.mktemp("retro")
    told = [
        f"the cat number {n} sat on a mat.\nit saw dog {n % 7} in the garden.\n"
        + "the dog ran after the cat. " * (n % 4)
        for n in range(40)
    ]
    (folder / "a.txt").write_text("\n\n".join([*told, told[3]]))
    tiny_model("mlm").save(folder / "encoder")
    return folder


def settings_of(place, *more):
    return [*SMALL, f"retrieval.encoder={place / 'encoder'}", *more]


def train(place, out, *more, **options):
    made = complete_pretraining("retro", settings=settings_of(place, *more), options=options)
    return pretrain(place / "a.txt", out, made, progress=False)


@pytest.fixture(scope="module")
def run(place):
    train(place, place / "run")
    return place / "run"


def open_setup(out, monkeypatch):
    """The setup of a run, as `resume` opens it."""
    found = []
    original = retro.add_retrieval
    monkeypatch.setattr(
        retro, "add_retrieval", lambda *given: found.append(original(*given)) or found[0]
    )
    resume(out, progress=False)
    return found[0]


def test_a_run_makes_database_neighbors_and_figures(run):
    database, facts = ChunkDatabase.open(run), json.loads((run / "retrieval.json").read_text())
    assert facts["database_chunks"] == len(database) > 50
    assert facts["corpus_chunks"] > len(database)
    assert facts["chunks_without_neighbors"] == 0
    assert facts["overlap"]["train"]["continuation"]["mean"] > 0
    model = cloze.load(run)
    assert model.config.chunk_length == 8
    assert cloze.info(run).to_dict()["family"] == "retro"
    rows = [row for row in metrics(run) if row["kind"] == "eval"]
    assert [row["step"] for row in rows] == [2, 4]


def test_batches_hold_the_neighbors_of_their_chunks(run, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "run")
    setup = open_setup(tmp_path / "run", monkeypatch)
    neighbors = setup.neighbors
    chunks, database = neighbors.chunks, neighbors.database
    documents = database.text.documents
    for number, found in enumerate(neighbors.numbers):
        for one in found[found >= 0]:
            assert documents[one] != chunks.digests[number]  # nor a copy of the document
    copies = {}  # numbers of chunks by their tokens
    for number in range(len(chunks)):
        copies.setdefault(tuple(chunks.read_chunk(number).tolist()), []).append(number)
    seen = 0
    for batch in (*setup.step(0, DISTRIBUTED), *setup.held_out_resident()):
        row, placed = batch.gather_tokens(), batch.read_neighbors(torch.device("cpu"))
        for tokens, readers, ids, mask in zip(
            placed.tokens, placed.readers, placed.ids, placed.mask, strict=True
        ):
            assert (row.positions[tokens] == row.positions[tokens[0]] + torch.arange(8)).all()
            values = [
                database.read_values(neighbors.numbers[number])[0].tolist()
                for number in copies[tuple(row.ids[tokens].tolist())]
            ]
            assert ids.tolist() in values
            real = readers[readers < batch.capacity]
            assert real[0] == tokens[-1]  # the last token of the chunk reads them first
            assert (row.positions[real] == row.positions[real[0]] + torch.arange(len(real))).all()
            assert mask.any()
            seen += 1
        used = placed.readers[placed.readers < batch.capacity]
        assert len(used.unique()) == len(used)
    assert seen > 10


class DISTRIBUTED:
    rank, world_size = 0, 1


def test_a_resumed_run_has_the_same_bits(run, place, tmp_path):
    out = tmp_path / "run"
    train(place, out, "run.save_every=2", "run.keep_states=9")
    for path in (out / "state").iterdir():
        if not path.name.endswith("-step-2"):
            shutil.rmtree(path)
    (out / "model.safetensors").unlink()
    shutil.rmtree(out / "neighbors")  # they are found again
    assert resume(out, progress=False).steps == 4
    assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_what_a_killed_run_has_made_is_used(run, place, tmp_path, monkeypatch):
    out = tmp_path / "run"
    shutil.copytree(run, out)
    for name in ("state", "config.json", "model.safetensors", "report.html", "metrics.jsonl"):
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in files_of(out):
        if name.endswith(".json") and "/" not in name and name != "retrieval.json":
            (out / name).unlink()
    monkeypatch.setattr(retro, "embed_chunks", None)
    train(place, out)
    assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_retrofit_leaves_the_decoder_as_it_is(place, tmp_path):
    few = [one for one in SMALL if not one.startswith("retrieval")]
    base = complete_pretraining("gpt", settings=few)
    pretrain(place / "a.txt", tmp_path / "gpt", base, progress=False)
    made = complete_pretraining(
        "retro",
        options={"init_from": str(tmp_path / "gpt")},
        settings=[
            one
            for one in settings_of(place, "run.steps=3")
            if not one.startswith(("model", "vocabulary"))
        ],
    )
    assert isinstance(made, RetroRecipe)
    pretrain(place / "a.txt", tmp_path / "fit", made, progress=False)
    before, after = (cloze.load(tmp_path / name).module.state_dict() for name in ("gpt", "fit"))
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    added = after.keys() - before.keys()
    assert added
    assert all(Retro.is_retrieval_weight(name) for name in added)
    saved = cloze.load(tmp_path / "fit")
    rng = torch.Generator().manual_seed(made.run.seed)
    fresh = retro.extend_decoder(cloze.load(tmp_path / "gpt"), made, rng=rng)
    fresh_weights = fresh.module.state_dict()
    assert any(not torch.equal(saved.module.state_dict()[n], fresh_weights[n]) for n in added)
    ids = torch.randint(0, 300, (1, 20))
    neighbors = some_neighbors(saved.module, rows=1, length=20)
    with torch.no_grad():
        expected = cloze.load(tmp_path / "gpt").module(ids)
        assert torch.equal(fresh.module(ids, neighbors=neighbors), expected)  # as it begins
        assert torch.equal(saved.module(ids), expected)  # without a database it still is the GPT-2
        assert not torch.equal(saved.module(ids, neighbors=neighbors), expected)


def test_the_decoder_learns_too_if_asked(run, place, tmp_path):
    options = {"init_from": str(run)}
    few = [
        one for one in settings_of(place, "run.steps=2") if not one.startswith(("model", "vocab"))
    ]
    made = complete_pretraining("retro", options=options, settings=few)
    assert not retro.resolve_freezing(made)
    frozen = complete_pretraining(
        "retro", options=options, settings=[*few, "retrieval.freeze_decoder=true"]
    )
    assert retro.resolve_freezing(frozen)
    pretrain(place / "a.txt", tmp_path / "more", made, progress=False)
    before, after = (cloze.load(path).module.state_dict() for path in (run, tmp_path / "more"))
    assert not torch.equal(before["blocks.0.ffn.up.weight"], after["blocks.0.ffn.up.weight"])


def test_a_database_of_another_run(run, place, tmp_path):
    (tmp_path / "b.txt").write_text("the dog number 5 sat on a mat. it saw cat 3. " * 6)
    made = complete_pretraining(
        "retro",
        settings=settings_of(
            place,
            f"retrieval.database={run / 'database'}",
            f"vocabulary.folder={run}",
            "data.hold_out=0",
            "run.steps=1",
        ),
    )
    pretrain(tmp_path / "b.txt", tmp_path / "run", made, progress=False)
    assert not (tmp_path / "run" / "database").exists()
    facts = json.loads((tmp_path / "run" / "retrieval.json").read_text())
    assert facts["database_chunks"] == len(ChunkDatabase.open(run))


def test_a_trained_model_retrieves_from_other_text(run, place, tmp_path, monkeypatch):
    text, out = tmp_path / "b.txt", tmp_path / "database"
    told = [f"the moon number {n} is far away. it is cold there, and dark." for n in range(9)]
    text.write_text("\n\n".join(told))

    def stop(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(build, "embed_chunks", stop)
        with pytest.raises(KeyboardInterrupt):
            cloze.build_database(run, text, out, encoder=place / "encoder", progress=False)
    made = cloze.build_database(
        run, text, out, encoder=place / "encoder", workers=1, progress=False
    )
    assert made.to_dict()["documents"] == 9
    assert {path.name[:4] for path in out.iterdir()} == {"data", "keys", "toke"}
    found = cloze.generate(run, PROMPT, database=out, max_new_tokens=2, seed=1)
    for one in found[0].chunks[0].neighbors:
        assert one.text.strip()
        assert "dog" not in one.text + one.continuation
    with raises(InputError, out, fix="force"):
        cloze.build_database(run, text, out, encoder=place / "encoder", progress=False)
    with raises(InputError, "RETRO", fix="retro"):
        cloze.build_database(tiny_model("lm", family="gpt2"), text, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    command = ["database", str(run), str(text), "--out", str(out), "--force", "--json", "--quiet"]
    command += ["--key-encoder", str(place / "encoder"), "--workers", "1"]
    shown = CliRunner().invoke(app, command)
    assert json.loads(shown.stdout) == made.to_dict()


def test_keys_of_the_same_text_are_not_computed_again(run, place, tmp_path, monkeypatch):
    found = []

    def embed_some(encoder, tokenizer, chunks):
        found.extend(chunks)
        return embed_chunks(encoder, tokenizer, chunks)

    monkeypatch.setattr(retro, "embed_chunks", embed_some)
    train(
        place,
        tmp_path / "run",
        f"retrieval.database={run / 'database'}",
        f"vocabulary.folder={run}",
        "run.steps=1",
    )
    facts = json.loads((tmp_path / "run" / "retrieval.json").read_text())
    held_out = facts["corpus_chunks"] - facts["database_chunks"]
    assert 0 < len(found) <= held_out  # a copy of a document in the database has its keys
    ours, theirs = (read_parts(path / "neighbors") for path in (run, tmp_path / "run"))
    assert (ours == theirs).all()


def read_parts(folder):
    parts = sorted(folder.glob("*.safetensors"))
    return np.concatenate([read_arrays(path)[0]["numbers"] for path in parts])


def test_without_retrieval_there_is_no_database(place, tmp_path):
    train(place, tmp_path / "run", "retrieval.enabled=false")
    assert not (tmp_path / "run" / "database").exists()
    assert cloze.load(tmp_path / "run").family.name == "retro"


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("sampling.max_length=9", ["max_length", "--max-length"]),
        ("retrieval.encoder=missing", ["missing"]),
        ("retrieval.first_retrieval_layer=9", ["first_retrieval_layer", 9]),
        ("model.chunk_length=8", ["chunk_length"]),
        ("objective.kind=mlm", ["causal"]),
        ("retrieval.database=missing", ["missing", "database"]),
    ],
)
def test_mistakes(place, tmp_path, setting, names):
    with raises(ClozeError, names):
        train(place, tmp_path / "run", setting)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_only_a_gpt2_can_be_fitted(place, tmp_path):
    tiny_model("lm", family="openai-gpt").save(tmp_path / "gpt")
    with raises(ConfigError, "retro", fix="gpt"):
        complete_pretraining("retro", options={"init_from": str(tmp_path / "gpt")})


PROMPT = "the cat number 3 sat on a mat. it saw dog 3 in the garden. the dog ran after"


def test_generation_shows_the_neighbors(run):
    found = cloze.generate(run, PROMPT, database=run, max_new_tokens=20, stop=False, seed=1)
    (one,) = found
    ids = len(cloze.load(run).tokenizer.encode_ids([PROMPT], add_special_tokens=False)[0])
    assert len(one.chunks) == (ids + 20) // 8
    for chunk in one.chunks:
        assert len(chunk.neighbors) == 2
        assert 1.01 > chunk.neighbors[0].score >= chunk.neighbors[1].score
    assert (PROMPT + one.continuation).startswith(one.chunks[0].text)
    shown = found.to_dict()["continuations"][0]["chunks"]
    assert shown[0]["neighbors"][0].keys() == {"text", "continuation", "score"}
    assert json.loads(json.dumps(shown)) == shown
    html = found._repr_html_()
    assert "neighbor" in html
    without = cloze.generate(run, PROMPT, max_new_tokens=20, stop=False, seed=1)
    assert not without[0].chunks
    assert "chunks" not in without.to_dict()["continuations"][0]
    stream = cloze.generate(
        run, PROMPT, database=run, max_new_tokens=20, stop=False, seed=1, stream=True
    )
    assert "".join(stream) == one.continuation
    assert stream.result[0].chunks == one.chunks


def test_scores_with_and_without_a_database(run, tmp_path):
    with_, without = cloze.score(run, PROMPT, database=run), cloze.score(run, PROMPT)
    values = np.array(
        [
            [a.log_probability, b.log_probability]
            for a, b in zip(with_.tokens, without.tokens, strict=True)
        ]
    )
    assert (values[:8, 0] == values[:8, 1]).all()
    assert (values[8:, 0] != values[8:, 1]).all()
    path = tmp_path / "lines.txt"
    path.write_text(f"{PROMPT}\n{PROMPT[:50]}\n")
    scores = cloze.evaluate(run, path, database=run).scores
    assert scores["perplexity_without_retrieval"] == pytest.approx(
        cloze.evaluate(run, path).scores["perplexity"]
    )
    assert scores["perplexity"] != scores["perplexity_without_retrieval"]


def test_databases_that_do_not_fit(run, tmp_path):
    with raises(InputError, "database", fix="RETRO"):
        cloze.generate(tiny_model("lm", family="gpt2"), "a", database=run)
    with raises(InputError, "database"):
        cloze.score(tiny_model("mlm"), "a", database=run)
    with raises(InputError, "vocabulary"):
        cloze.generate(tiny_model("lm", family="retro", chunk_length=8), "a", database=run)
    with raises(InputError, 8, 4):
        cloze.generate(tiny_model("lm", family="retro", chunk_length=4), "a", database=run)
    moved = tmp_path / "database"
    shutil.copytree(run / "database", moved)
    path = moved / "database.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"encoder": str(tmp_path / "gone")}))
    with raises(InputError, "gone", fix="encoder"):
        cloze.generate(run, "a", database=moved)
    path.write_text(json.dumps(values | {"encoder_digest": "0" * 32}))
    with raises(InputError, "version", fix="again"):
        cloze.generate(run, "a", database=moved)
