"""40 script payloads through every page, in a browser, with the events of mouse and keyboard."""

import html
import json
import re
import shutil
import subprocess

import pytest

import cloze
from cloze.checkpoint.task import Task
from cloze.report.page import build_report
from helpers import tiny_model

pytestmark = pytest.mark.stress
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")

RUN = "document.documentElement.dataset.ran=1"
TAGS = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<body onload={RUN}>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'>",
    f"<a href='javascript:{RUN}'>x</a>",
    f"<details open ontoggle={RUN}>",
    f"<input autofocus onfocus={RUN}>",
    f"<div onmouseover={RUN}>x</div>",
    f"<style onload={RUN}></style>",
    f"<video><source onerror={RUN}></video>",
)
CLOSING = ("", '">', "'>", "]]>", "</title>", "</style>", "--><!-- -->", "</textarea>", "\\u003c")
PAYLOADS = [
    *[f"{before}{tag}" for tag in TAGS for before in CLOSING][::3][:36],
    f'" onmouseover="{RUN}" x="',
    f"' onfocus='{RUN}' autofocus x='",
    f"javascript:{RUN}",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
]

# Run without the page's policy: a payload that became an element or attribute would run.
EVENTS = """
<script>
const kinds = ["mouseover", "mouseenter", "mousemove", "pointermove", "pointerenter", "pointerdown",
  "mousedown", "mouseup", "click", "dblclick", "focus", "focusin", "wheel", "touchstart"];
addEventListener("load", () => {
  let sent = 0;
  for (const node of document.querySelectorAll("*")) {
    const box = node.getBoundingClientRect();
    for (const kind of kinds) {
      node.dispatchEvent(new MouseEvent(kind, {bubbles: true, cancelable: true,
        clientX: box.x + box.width / 2, clientY: box.y + box.height / 2}));
      sent += 1;
    }
    if (node.focus) node.focus();
    for (const key of ["ArrowLeft", "ArrowRight", "Enter", "Escape"])
      node.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  }
  document.documentElement.dataset.sent = sent;
});
</script>
"""


def browse(page: str, path) -> str:
    """The document after all events, in a browser without the page's security policy."""
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert open_page != page or "Content-Security-Policy" not in page
    path.write_text(open_page.replace("</body>", f"{EVENTS}</body>"))
    ran = subprocess.run(
        [
            *(CHROMIUM, "--headless"),
            *("--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"),
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return ran.stdout


def training_report(folder):
    rows = []
    for step in range(1, 6):
        values = {"loss": 9 / step, "mlm_loss": 9 / step, "lr": 1e-4, "seconds": step}
        rows.append({"kind": "train", "step": step, "tokens": 9 * step, **values})
        rows.append({"kind": "eval", "step": step, "mlm_loss": 9 / step, "perplexity": 9.0})
    for row in rows:
        row.update(dict.fromkeys(PAYLOADS, 1.0))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fills = [
        {"text": text, "truth": text, "before": [[text, 0.1]], "after": [[text, 0.2]]}
        for text in PAYLOADS
    ]
    near = [{"text": text, "neighbours": [[text, 0.5]]} for text in PAYLOADS]
    (folder / "fills.json").write_text(json.dumps(fills))
    (folder / "neighbours.json").write_text(json.dumps(near))
    (folder / "corpus.json").write_text(json.dumps(dict.fromkeys(PAYLOADS, 5)))
    keys = "".join(f"{json.dumps(text)} = {json.dumps(text)}\n" for text in PAYLOADS)
    (folder / "recipe.toml").write_text(keys)
    return build_report(folder, title=PAYLOADS[0]).html()


def classifier():
    task = Task(name="classify", truncation="head")
    return tiny_model("sequence", labels=tuple(PAYLOADS), positions=120, task=task)


def labelled(folder):
    path = folder / "dev.jsonl"
    rows = [{"text": f"the cat {text}"[:200], "label": text} for text in PAYLOADS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def evaluation_report(folder):
    result = cloze.evaluate(classifier(), labelled(folder))
    return result.page(PAYLOADS[1]).html()


def comparison_report(folder):
    models = {name: classifier() for name in PAYLOADS[:10]}
    result = cloze.compare(models, labelled(folder))
    return result.page(PAYLOADS[4]).html()


def notebook_results(folder):
    mlm, tagger = tiny_model("mlm", positions=120), tiny_model("token", labels=("O", "B-X"))
    found = [
        *(cloze.classify(classifier(), text, truncation="head") for text in PAYLOADS[:5]),
        *(cloze.fill(mlm, f"[MASK] {text}") for text in PAYLOADS),
        *(cloze.tag(tagger, text, truncation="head") for text in PAYLOADS),
    ]
    shown = [one._repr_html_() for one in found if hasattr(one, "_repr_html_")]
    assert shown
    return f"<!doctype html><html><body>{''.join(shown)}</body></html>"


@needs_browser
@pytest.mark.parametrize(
    "make", [training_report, evaluation_report, comparison_report, notebook_results]
)
def test_no_payload_runs(make, tmp_path):
    assert len(set(PAYLOADS)) == 40
    page = make(tmp_path)
    found = browse(page, tmp_path / "page.html")
    top = re.search("<html[^>]*>", found)[0]
    assert "data-ran" not in top
    sent = int(re.search(r'data-sent="(\d+)"', top)[1])
    assert sent > 1000, sent
    shown = sum(html.escape(text, quote=False)[:60] in found for text in PAYLOADS)
    print(f"{make.__name__}: {sent:,} events, {shown} of 40 payloads shown")  # noqa: T201
    assert shown > 3


@needs_browser
def test_the_test_can_fail(tmp_path):
    """A page with a payload that does run is noticed."""
    found = browse(f"<html><body>{PAYLOADS[1]}{TAGS[10]}</body></html>", tmp_path / "bad.html")
    assert 'data-ran="1"' in re.search("<html[^>]*>", found)[0]
