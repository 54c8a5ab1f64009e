"""Compare the vectors of one word in several sentences: python bench/one_vector.py.

Prints the cosine of the word in the first sentence with the word in each of the others, for a
one-hot vector, for word2vec (with --words FOLDER, one vector per word) and for a BERT: its
embeddings and its last layer. The sentences are those of docs/bert.md.
"""

import argparse

import numpy as np

import cloze

SENTENCES = {
    "python": [
        "He got bit by Python.",
        "Python is my favourite programming language.",
    ],
    "stick": [
        "He hit the dog with a stick.",
        "She picked up a stick in the forest.",
        "You should stick to the plan.",
        "Stick the stamp on the letter.",
    ],
}


def find_token(model: cloze.Model, text: str, word: str) -> int:
    """The index of the word's token in a text."""
    offsets = model.tokenizer.encode(text).offsets
    return [text[start:end].lower() for start, end in offsets].index(word)


def compare_layer(model: cloze.Model, word: str, texts: list[str], layers: str) -> list[float]:
    """Cosines of the word's vector in the first text with those in the others."""
    found = cloze.embed(model, texts, pooling="none", layers=layers, normalize=True)
    vectors = [
        one.vectors[find_token(model, text, word)] for one, text in zip(found, texts, strict=True)
    ]
    return [float(vectors[0] @ other) for other in vectors[1:]]


def compare_one_hot(model: cloze.Model, word: str, texts: list[str]) -> list[float]:
    ids = [model.tokenizer.encode(text).ids[find_token(model, text, word)] for text in texts]
    table = np.eye(model.tokenizer.vocab_size, dtype=np.float32)[ids]
    return [float(table[0] @ other) for other in table[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="cloze-en", help="an encoder")
    parser.add_argument("--words", help="a folder of word vectors")
    given = parser.parse_args()
    model = cloze.load(given.model)
    for word, texts in SENTENCES.items():
        rows = {"one-hot": compare_one_hot(model, word, texts)}
        if given.words:
            same = cloze.cosine(cloze.load(given.words), word, word)
            rows["word2vec"] = [same] * (len(texts) - 1)
        for layers in ("embeddings", "last"):
            rows[f"BERT, {layers}"] = compare_layer(model, word, texts, layers)
        print(f"{word}: {texts[0]}")
        for number, text in enumerate(texts[1:]):
            print(
                f"  {text}", *(f"{name} {row[number]:.2f}" for name, row in rows.items()), sep="\t"
            )


if __name__ == "__main__":
    main()
