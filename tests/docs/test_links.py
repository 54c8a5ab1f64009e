"""Links between documents lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def anchors(path: Path) -> set[str]:
    """The headings of a document, as GitHub names them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S)
    found = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in found}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document):
    text = document.read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text)
    broken = []
    for link in (one or other for one, other in links):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(document):
    if document.name == "CHANGELOG.md":
        pytest.skip("history names files that are gone")
    named = re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|toml|md))`", document.read_text("utf-8"))
    folders = [ROOT, ROOT / "src", ROOT / "src/cloze", ROOT / "src/cloze/nn"]
    missing = [name for name in named if not any((folder / name).exists() for folder in folders)]
    assert not missing
