"""The panels of the page of `cloze serve`: each shows what Python returns, also narrow and dark."""

import contextlib
import io
import json
import subprocess

import pytest

import cloze
from page_checks import check_accessibility
from served_models import save_models
from served_page import NARROW, STATES, Page, percent
from servers import run_server


def check_panel(page, panel, models):
    """What a panel shows is what the Python function returns."""
    name, values = STATES[panel]
    model = models[name]
    rows = page.texts(".bar-row")
    if panel == "fill":
        masks = cloze.fill(model, values["text"], top=8).to_dict()["masks"]
        predictions = [one for mask in masks for one in mask["predictions"]]
        assert rows == [f"{one['word']}{percent(one['score'])}" for one in predictions]
    elif panel == "similarity":
        texts = values["text"].split("\n")
        scores = cloze.similarity(model, texts).to_dict()["scores"]
        assert page.texts(".matrix tbody td") == [f"{x:.2f}" for row in scores for x in row]
    elif panel == "rerank":
        found = cloze.rerank(model, values["query"], values["documents"].split("\n"))
        assert rows == [f"{one.text}{one.score:.3f}" for one in found.documents]
    elif panel == "classify":
        found = cloze.classify(model, values["text"], values["pair"]).to_dict()
        assert rows == [f"{one['label']}{percent(one['score'])}" for one in found["labels"]]
    elif panel == "tag":
        spans = cloze.tag(model, values["text"]).to_dict()["spans"]
        assert spans
        assert page.texts(".marked mark") == [f"{one['text']}{one['label']}" for one in spans]
        assert page.texts(".legend li") == [f"X {len(spans)}"]
    elif panel == "answer":
        found = cloze.answer(model, values["question"], values["context"], top=3).to_dict()
        expected = [f"{one['text']}{percent(one['probability'])}" for one in found["answers"]]
        assert rows == expected
        assert page.texts(".marked mark") == [found["answers"][0]["text"]]
    elif panel == "choose":
        found = cloze.choose(model, values["text"], values["options"].split("\n")).to_dict()
        assert rows == [f"{one['text']}{percent(one['score'])}" for one in found["choices"]]
    elif panel == "generate":
        found = cloze.generate(model, values["text"], max_new_tokens=8, seed=1).to_dict()
        (best,) = found["continuations"]
        assert page.texts(".written .added") == [best["continuation"]]
        following = cloze.suggest(model, best["full_text"])
        expected = [percent(one.probability) for one in following.suggestions]
        assert page.texts(".next .bar-value") == expected
    elif panel == "score":
        found = cloze.score(model, values["text"]).to_dict()
        assert len(page.texts(".token")) == len(found["tokens"])
        assert page.texts(".fact .value")[0] == f"{found['perplexity']:.2f}"
    elif panel == "translate":
        found = cloze.translate(model, values["text"], beam=1, align=True).to_dict()
        (best,) = found["translations"]
        assert page.texts(".written") == [best["text"]]
        assert page.texts(".alignment .token") == list(best["alignment"]["source"])
        assert page.texts(".alignment button.word") == list(best["alignment"]["target"])
    elif panel == "summarize":
        found = cloze.summarize(model, values["text"]).to_dict()["summaries"][0]
        assert page.texts(".written") == [found["text"] or "(empty)"]
    elif panel == "draw":
        found = cloze.draw(model, values["text"], samples=2, steps=2).to_dict()["pictures"]
        sources = page.browser.run(
            "return [...document.querySelectorAll('.pictures img')].map((one) => one.src)"
        )
        assert sources == [f"data:image/png;base64,{one['png']}" for one in found]
    elif panel == "similar":
        found = cloze.similar(model, values["word"]).to_dict()
        assert rows == [f"{one['word']}{one['score']:.3f}" for one in found["words"]]
    else:
        document = page.find("iframe.view").get_attribute("srcdoc")
        assert document == cloze.explain.attention(model, values["text"]).html()


@pytest.mark.parametrize("panel", STATES)
def test_a_panel_shows_the_result_of_python(page, models, panel):
    page.open(panel)
    assert page.problem == page.notice == ""
    check_panel(page, panel, models)
    page.check()
    check_accessibility(page.browser)
    for name, value in STATES[panel][1].items():
        assert page.value(name) == value


@pytest.mark.parametrize("panel", STATES)
def test_a_panel_in_a_narrow_window_and_in_the_dark(page, panel):
    page.open(panel, size=NARROW, dark=True)
    width = page.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    check_accessibility(page.browser)
    outside = page.browser.run(
        "return [...document.querySelectorAll('.panel:not([hidden]) :is(button, input, select)')]"
        ".filter((e) => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map((e) => e.textContent)"
    )
    assert outside == []
    page.check()


@pytest.mark.parametrize("panel", STATES)
def test_requests_can_be_copied(page, server, panel):
    page.open(panel)
    curl = page.copied("Copy as curl")
    assert curl.startswith("curl ")
    folder_free = curl.replace("-o view.html", "")
    answer = subprocess.run(
        ["bash", "-c", folder_free.replace("curl ", "curl -sS ", 1)],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    program = page.copied("Copy as Python").replace(
        'open("view.html", "w", encoding="utf-8").write(answer.text)', "print(answer.text)"
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, panel, "exec"), {})
    if panel == "explain":
        assert answer.strip() == printed.getvalue().strip()
    elif panel in ("generate", "draw"):
        assert answer.rstrip().endswith("data: [DONE]")
        assert printed.getvalue().split() == answer.split()
    else:
        assert "error" not in json.loads(answer)
        assert len(printed.getvalue()) > 10
    page.check()


@pytest.mark.parametrize("size", [(1280, 900), NARROW], ids=["wide", "narrow"])
def test_the_page_of_the_routes(page, server, size):
    page.browser.open(f"{server.url}/docs", size=size)
    paths = server.client.get("/openapi.json").json()["paths"]
    page.wait(lambda: len(page.find_all("details.route")) == sum(map(len, paths.values())))
    page.browser.run("for (const e of document.querySelectorAll('details')) e.open = true")
    fields = page.browser.run(
        "return [...document.querySelectorAll('.fields-table tbody th')].map((e) => e.textContent)"
    )
    assert {"text", "top", "view", "input", "documents"} <= set(fields)
    curl = page.browser.run(
        "return [...document.querySelectorAll('.route > .code')].map((e) => e.textContent)"
    )
    assert any("/api/fill" in one and "[MASK]" in one for one in curl)
    width = page.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    check_accessibility(page.browser)
    page.check()


def test_documents_of_an_index_are_found(browser, models, tmp_path):
    folders = save_models({"mlm": models["mlm"]}, tmp_path)
    rows = [
        {"id": "<b>a</b>", "text": "The 👩‍👩‍👧 cat sat. The dog ran <img src=x onerror=alert(1)>."},
        {"id": "b", "title": "Mats", "text": "A mat."},
    ]
    made = cloze.index(str(folders["mlm"]), rows, tmp_path / "notes", store="exact")
    with run_server(folders, indexes=(made.folder,)) as server:
        page = Page(browser, server).open("search", "mlm", {"query": "dog", "mode": "bm25"})
        (hit,) = cloze.search(made.folder, "dog", mode="bm25").hits
        start, end = hit.highlight
        assert page.texts(".hits mark") == [hit.snippet[start:end]]
        assert page.texts(".hits strong") == ["<b>a</b>"]
        page.check()
        page.open("search", "mlm", {"query": "nothing here", "mode": "bm25"})
        assert "Nothing was found." in page.texts(".output p")
