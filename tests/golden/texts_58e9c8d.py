"""The texts of the golden folders: sentences of a small grammar, and files to evaluate on."""

import json
import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOUNS = ["cat", "dog", "bird", "king", "queen", "river", "house", "garden", "child", "teacher"]
VERBS = ["sees", "likes", "finds", "follows", "hears", "paints"]
ADJECTIVES = ["small", "old", "red", "quiet", "happy"]
PLACES = ["in the park", "near the sea", "at night", "on the hill"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def sentence(rng):
    """Such as "the small cat sees a dog near the sea ."."""
    subject, object_ = (
        f"{rng.choice(['the', 'a'])} {rng.choice(ADJECTIVES) + ' ' if rng.random() < 0.4 else ''}"
        f"{rng.choice(NOUNS)}"
        for _ in range(2)
    )
    place = f" {rng.choice(PLACES)}" if rng.random() < 0.5 else ""
    return f"{subject} {rng.choice(VERBS)} {object_}{place} ."


def sentences(count, seed):
    rng = random.Random(seed)
    return [sentence(rng) for _ in range(count)]


WORDS = sorted(
    {word for line in sentences(400, 0) for word in line.split() if word.isalpha()} - {"a"}
)
LETTER_PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
BERT_PIECES = [*SPECIAL, *WORDS, *LETTER_PIECES, ".", ",", "?"]

INPUTS = {
    "texts": [*sentences(4, 1), "the zebra, an old one, sleeps"],
    "masked": [
        "the [MASK] sees a dog near the sea .",
        "a [MASK] likes the [MASK] house .",
    ],
    "candidates": ["cat", "dog", "queens"],
    "pairs": list(zip(sentences(3, 2), sentences(3, 3), strict=True)),
    "questions": [
        ["who sees a dog ?", "the old king sees a dog near the sea ."],
        ["what does the child like ?", "a child likes the red bird . the teacher hears a cat ."],
    ],
    "choices": [[sentences(1, 4)[0], sentences(3, 5)], ["the king", ["a queen", "the river"]]],
    "prompts": ["the small cat", "a dog finds the"],
    "words": ["king", "queen", "cat", "river", "garden"],
    "unseen": ["kings", "gardener"],
}


def write_data():
    """Texts for the inference functions, and files to evaluate on."""
    data = HERE / "data"
    data.mkdir(exist_ok=True)
    (data / "inputs.json").write_text(json.dumps(INPUTS, indent=1) + "\n")
    lines = sentences(24, 6)
    documents = ["\n".join(lines[at : at + 4]) for at in range(0, len(lines), 4)]
    (data / "text.txt").write_text("\n\n".join(documents) + "\n")
    (data / "source.txt").write_text("\n".join(lines[:8]) + "\n")
    (data / "target.txt").write_text("\n".join(" ".join(x.split()[::-1]) for x in lines[:8]) + "\n")
    rows = [f"{text}\t{('no', 'yes')[len(text) % 2]}" for text in lines[:12]]
    (data / "labels.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    rows = [f"{a}\t{b}\t{len(a) % 6}" for a, b in zip(lines[:10], lines[10:20], strict=True)]
    (data / "similarity.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    tagged = [[f"{w} {'B-X' if w in NOUNS else 'O'}" for w in line.split()] for line in lines[:8]]
    blocks = ["\n".join(block) for block in tagged]
    (data / "tags.conll").write_text("-DOCSTART- O\n\n" + "\n\n".join(blocks) + "\n")
    questions = []
    for number, text in enumerate(lines[:6]):
        wanted = text.split()[-2]
        known = {"text": [wanted], "answer_start": [text.index(wanted)]}
        none = {"text": [], "answer_start": []}
        row = {"id": str(number), "question": f"where is {wanted} ?", "context": text}
        questions.append({**row, "answers": none if number == 2 else known})
    (data / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    choices = [
        {"context": text, "options": [lines[(at + 3 * n) % 24] for n in range(3)], "label": at % 3}
        for at, text in enumerate(lines[:6])
    ]
    (data / "choices.jsonl").write_text("".join(json.dumps(row) + "\n" for row in choices))
    (data / "pairs.csv").write_text("king,queen,9\ncat,river,2\ndog,cat,7\nhouse,garden,6\n")
