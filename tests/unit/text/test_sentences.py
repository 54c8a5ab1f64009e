import subprocess
import sys

import pytest

from cloze.text.sentences import find_sentence_spans, split_sentences

ONE = [
    "Mr. Smith met Dr. Who at St. Pancras.",
    "He likes fruit, e.g. Apples, i.e. Malus, vs. Pears (cf. Figs).",
    "The U.S. Army and the U.K. Government agreed at 5 p.m. Monday.",
    "J. R. R. Tolkien and A. A. Milne wrote books.",
    "See No. 5, Vol. III, Fig. 2 and p. 12.",
    "It weighs 3.14 kg and costs $2.50.",
    "He was born on Jan. 3 in St. Louis.",
    '"Stop!" he cried.',
    "“Why?” she asked.",
    "Wait ... what is that?",
    "He paused . . . and went on.",
    "1. Introduction",
    "Acme Inc. Chairman Lee resigned.",
    "Read www.example.com/a.html now.",
    "See Chap. I. and Roe v. Wade.",
    "「はい。」と彼は言った。",
    "“走！”，他说。",
    "円周率は３．１４です。",
]
SEVERAL = [
    ("He left. She stayed.", ["He left.", "She stayed."]),
    ("He works at Acme Inc. The pay is good.", ["He works at Acme Inc.", "The pay is good."]),
    ("He lives in the U.S. He likes it.", ["He lives in the U.S.", "He likes it."]),
    ("So do I. It's late.", ["So do I.", "It's late."]),
    ("She said no. I agreed.", ["She said no.", "I agreed."]),
    ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
    ("(He left.) She stayed.", ["(He left.)", "She stayed."]),
    ("It is so.[12] Others differ.[3]", ["It is so.[12]", "Others differ.[3]"]),
    ("What?! No way! Yes…", ["What?!", "No way!", "Yes…"]),
    ("Well... Maybe.", ["Well...", "Maybe."]),
    ("In 1999. Then 2000.", ["In 1999.", "Then 2000."]),
    ("A title\n \nA sentence.", ["A title", "A sentence."]),
    ("你好。我是小明！你呢？", ["你好。", "我是小明！", "你呢？"]),
    ("他说：「走吧。」我们走了。", ["他说：「走吧。」", "我们走了。"]),
    ("他說：“好。”她笑了。", ["他說：“好。”", "她笑了。"]),
    ('他说:"好。"她笑了。', ['他说:"好。"', "她笑了。"]),
    ('他走了。"好"是她说的。', ["他走了。", '"好"是她说的。']),
    ("真的?我不信!走吧", ["真的?", "我不信!", "走吧"]),
    ("『行こう。』彼は笑った。", ["『行こう。』", "彼は笑った。"]),
    ("यह घर है। वह बड़ा है।", ["यह घर है।", "वह बड़ा है।"]),
]


@pytest.mark.parametrize("text", ONE)
def test_a_stop_inside_a_sentence_does_not_end_it(text: str):
    assert split_sentences(text) == [text]


@pytest.mark.parametrize(("text", "expected"), SEVERAL)
def test_sentence_ends(text: str, expected: list[str]):
    assert split_sentences(text) == expected


@pytest.mark.parametrize("blank", ["", "  ", "\n\n \n"])
def test_blank_text_has_no_sentence(blank: str):
    assert find_sentence_spans(blank) == []


def test_spans_exclude_white_space_around_sentences():
    assert find_sentence_spans("  One here.  Two there. \n") == [(2, 11), (13, 23)]


def test_torch_is_not_imported():
    code = "import sys, cloze.text.sentences; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
