"""Typical user code, which mypy --strict accepts without annotations or casts: `make lint` checks.

Nothing here is run. The types that users rely on are stated with `assert_type`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import cloze
from cloze.plot.view import View
from cloze.results import Results
from cloze.tasks.answer import AnswerResult
from cloze.tasks.choose import Choice
from cloze.tasks.classify import Classification
from cloze.tasks.classify_images import ImageClassification
from cloze.tasks.embed import TokenVectors
from cloze.tasks.fill import FillResult
from cloze.tasks.generate import Generations, GenerationStream
from cloze.tasks.info import Info
from cloze.tasks.score import TextScore
from cloze.tasks.similar import Similar
from cloze.tasks.suggest import Suggestions
from cloze.tasks.summarize import Summary
from cloze.tasks.tag import TagResult
from cloze.tasks.translate import Translation
from cloze.text.alignment import TokenAlignment


def inspect_models(model: cloze.Model) -> None:
    assert_type(cloze.explain(model, "A fine film.", view="attention"), View)
    assert_type(cloze.explain.attention("cloze-en", "A fine film.", layers=[1]), View)
    assert_type(cloze.explain.compare(("cloze-en", "a"), (model, "b"), view="attention"), View)
    assert_type(model.explain("A fine film."), View)
    view = model.explain.attention("A fine film.", "Another.")
    assert_type(view.save(Path("film.html")), Path)
    assert_type(view.data["attention"], Any)


def read_texts() -> Iterator[str]:
    yield from ("A fine film.", "Too long.")


def describe(model: cloze.Model, found: Results[FillResult]) -> str:
    return f"{model.family.name}: {', '.join(one.best for one in found)}"


class StopEarly(cloze.Callback):
    """A callback of a user."""


def load_models() -> None:
    model = cloze.load("cloze-en")
    cloze.load(Path("runs/bert"), device="cpu", dtype="bfloat16", quiet=True)
    cloze.load("runs/bert", device=torch.device("cuda", 1), dtype=torch.float16)
    assert_type(model.to("cuda", torch.bfloat16).save(Path("copy"), force=True), Path)
    assert_type(model.labels, tuple[str, ...])
    assert_type(model.num_parameters, int)
    assert_type(model.device, torch.device)
    assert_type(model.tokenizer.encode("A text.", "Another.").ids, list[int])
    model.module.train(False)
    print(model, model.config.hidden_size, model.max_length, model.capabilities["fill"])
    assert_type(cloze.info(model), Info)
    assert_type(model.info().total_parameters, int)
    assert_type(cloze.info(Path("runs/bert")).max_length, int | None)
    assert_type(model.export("huggingface", Path("exported"), force=True), Path)
    assert_type(model.push_to_hub("someone/films", private=True, token="…"), str)
    assert_type(sorted(cloze.builtin()), list[str])


def use_one_text() -> None:
    model = cloze.load("runs/films")
    filled = model.fill("A [MASK] film.", top=3, candidates={"good", "bad"})
    assert_type(filled, FillResult)
    assert_type(filled.best, str)
    assert_type(filled.masks[0].predictions[0].score, float)
    assert_type(cloze.classify(model, "A fine film.", truncation="head").label, str)
    assert_type(model.classify("A film.", "Another."), Classification)
    assert_type(model.tag("Ada lived in London.").spans[0].label, str)
    assert_type(model.answer("Who?", "Ada lived in London.", top=2), AnswerResult)
    assert_type(model.choose("It rained, so", ["we stayed.", "we left."]), Choice)
    assert_type(model.translate("ein Hund", beam=2), Translation)
    assert_type(model.summarize("ein Hund", max_length=9), Summary)
    assert_type(model.generate("The", max_new_tokens=5, temperature=0.7), Generations)
    assert_type(model.generate(), Generations)
    assert_type(model.generate("The", beam=4, n_best=2, stop_strings=["."]), Generations)
    stream = model.generate("The", stream=True, repetition_penalty=1.2)
    assert_type(stream, GenerationStream)
    assert_type("".join(stream), str)
    assert_type(stream.result, Generations)
    assert_type(model.suggest("The", top=3), Suggestions)
    assert_type(model.score("A text.").log_probability, float)
    assert_type(model.similar("king", top=3), Similar)
    assert_type(model.analogy("man", "king", "woman").words[0].word, str)
    assert_type(model.combine(["king", "woman"], {"man"}), Similar)
    assert_type(model.cosine("king", "queen"), float)
    assert_type(model.odd_one_out(("king", "queen", "car")).word, str)
    assert_type(model.tokenize("A text.").tokens, list[str])


def use_many_texts() -> None:
    model = cloze.load("runs/films")
    texts = ["A [MASK].", "Another [MASK]."]
    filled = model.fill(texts)
    assert_type(filled, Results[FillResult])
    assert_type(filled[0].best, str)
    assert_type(describe(model, filled), str)
    assert_type([one.best for one in filled[:1]], list[str])
    filled.to_pandas().to_csv("filled.csv")
    assert_type(filled.to_dict(), list[dict[str, Any]])
    assert_type(cloze.classify(model, read_texts()), Results[Classification])
    assert_type(cloze.classify(model, tuple(texts), pair=tuple(texts)), Results[Classification])
    assert_type(model.tag(texts), Results[TagResult])
    assert_type(model.answer(["Who?", "Where?"], "Ada lived in London."), Results[AnswerResult])
    assert_type(model.answer(("Who?",), (text for text in texts)), Results[AnswerResult])
    assert_type(model.choose(texts, [("a", "b"), ("c", "d")]), Results[Choice])
    assert_type(model.translate(read_texts()), Results[Translation])
    assert_type(model.summarize(read_texts()), Results[Summary])
    assert_type(model.generate(texts, seed=1), Results[Generations])
    assert_type(model.suggest(set(texts)), Results[Suggestions])
    assert_type(model.score(texts), Results[TextScore])
    assert_type(model.similar(("king", "queen")), Results[Similar])
    assert_type(model.similar(read_texts()), Results[Similar])
    assert_type(model.tokenize(texts), Results[TokenAlignment])
    assert_type(model.tokenize(read_texts(), pair=tuple(texts)), Results[TokenAlignment])
    print(model.score_pairs([("It is.", "It are.")]).accuracy)


def use_tables() -> None:
    model = cloze.load("runs/films")
    frame = pd.read_csv("films.csv")
    series = frame["text"]
    print(model.classify(series), model.embed(series).shape)


def use_images() -> None:
    model = cloze.load("runs/clip")
    assert_type(model.embed(images=["a.png", b"..."], normalize=True), NDArray[np.float32])
    assert_type(cloze.embed(model, images=Path("pictures")), NDArray[np.float32])
    found = model.classify(images=[Path("a.png")], labels=["a dog", "a cat"])
    assert_type(found, Results[ImageClassification])
    print([one.label for one in found], model.similarity("a dog", images="a.png"))
    single = cloze.classify(model, images="a.png", labels=["a dog"], template=["a {}", "the {}"])
    assert_type(single, ImageClassification | Results[ImageClassification])
    with cloze.open_index("runs/pictures") as index:
        print(index.search(images="a.png", k=3, thumbnails=True))


def embed_texts() -> None:
    model = cloze.load("cloze-en")
    vectors = model.embed(["A text.", "Another."], normalize=True, layers=[-1, -2])
    assert_type(vectors, NDArray[np.float32])
    similarity = vectors @ vectors.T
    print(similarity.round(2), model.embed("One text.").shape, model.embed(read_texts())[0])
    assert_type(model.embed(["A text."], pooling="none"), list[TokenVectors | None])
    assert_type(model.embed("A text.", pooling="none"), TokenVectors)
    for one in model.embed(["A text."], pooling="none"):
        if one is not None:
            print(one.encoding.tokens, one.vectors.shape)


def train_models() -> None:
    frame = pd.read_csv("films.csv")
    rows = [{"text": "A fine film.", "label": "good"}, {"text": "Too long.", "label": "bad"}]
    run = cloze.finetune(
        "classify",
        "cloze-en",
        train=frame,
        dev="dev.tsv",
        out="runs/films",
        epochs=2,
        lr=5e-5,
        batch_size=16,
        settings={"optimizer": {"weight_decay": 0.1}},
        force=True,
        progress=False,
        callbacks=[StopEarly()],
    )
    print(run.scores, run.steps, run.stopped)
    cloze.finetune("classify", cloze.load("cloze-en"), rows, Path("runs/films"), seeds=3)
    cloze.finetune("tag", Path("runs/bert"), [Path("a.conll"), "b.conll"], "runs/names")
    cloze.finetune("translate", None, ("train.de", "train.en"), "runs/de-en", minutes=10)
    paths = [Path("a.txt"), Path("b.txt")]
    cloze.pretrain(paths, out="runs/bert", minutes=30, settings={"run.seed": 1})
    cloze.pretrain("text/*.txt", "runs/bert", "laptop", steps=1000, max_length=128)
    cloze.pretrain(["a.txt", Path("b.txt")], "runs/words", family="word2vec")
    cloze.pretrain(tuple(paths), "runs/lstm", family="lstm", dev=paths)
    cloze.pretrain(Path("text").glob("*.txt"), "runs/bert", init_from=Path("runs/old"))
    cloze.pretrain(read_texts(), "runs/bert", epochs=1.5, whole_word=True)
    cloze.distill("runs/bert", paths, "runs/small", num_layers=3, temperature=2)
    cloze.resume("runs/bert", settings={"run.device": "cpu"})
    table = cloze.glue("runs/bert", "glue", tasks=("SST-2", "CoLA"), epochs=1)
    print(table.score, [row.task for row in table.rows])
    tokenizer = cloze.vocabulary(paths, out="vocabulary", kind="bpe", size=8000)
    print(tokenizer.encode("A text.").tokens, cloze.recipe("laptop", minutes=3).run.minutes)


def evaluate_models() -> None:
    model = cloze.load("runs/films")
    scores = model.evaluate("test.tsv", truncation="head").scores
    print(scores["accuracy"], cloze.evaluate("runs/films", [Path("test.tsv")]).to_dict())
    model.evaluate(pd.read_csv("test.csv"), text_column="text", label_column="label")
    compared = cloze.compare(["runs/films", Path("runs/other")], "test.tsv", seed=1)
    print(compared.to_dict())
    cloze.compare([model, cloze.load("runs/other")], "test.tsv")
    cloze.compare({"mine": model, "other": Path("runs/other")}, Path("test.tsv"))


def handle_errors() -> None:
    try:
        cloze.load("nothing")
    except cloze.ClozeError as error:
        print(error.problem, error.fix)
