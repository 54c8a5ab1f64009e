"""The predictions of a model for eleven masks, as a table for the documentation.

python bench/fills.py cloze-en
"""

import argparse

import cloze

SENTENCES = [
    "The capital of France is [MASK].",
    "He was born [MASK] London in 1850.",
    "The war began in [MASK].",
    "She is one [MASK] the most famous writers of her time.",
    "The city has a population [MASK] about 20,000 people.",
    "The film was directed [MASK] John Smith.",
    "It is located in the north [MASK] the country.",
    "He died [MASK] the age of 75.",
    "The University [MASK] California was founded in 1868.",
    "They [MASK] not able to win the game.",
    "The children played in the garden until it began to [MASK].",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="cloze-en")
    parser.add_argument("--top", type=int, default=4)
    given = parser.parse_args()
    model = cloze.load(given.model, device="cpu")
    print("| sentence | words and their probabilities |")
    print("|---|---|")
    for filled in cloze.fill(model, SENTENCES, top=given.top):
        guesses = filled.masks[0].predictions
        words = ", ".join(f"{guess.word} {guess.score:.2f}" for guess in guesses)
        print(f"| {filled.text} | {words} |")


if __name__ == "__main__":
    main()
