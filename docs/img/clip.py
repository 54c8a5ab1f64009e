"""The picture of docs/clip.md: the drawings that a CLIP finds nearest to some texts.

python docs/img/clip.py MODEL        # writes docs/img/clip-search.png
"""

import argparse
from pathlib import Path

import numpy as np

import cloze
from cloze.data.images.drawings import make_drawing
from cloze.tasks.image_text import compute_image_vectors, compute_text_vectors
from cloze.tasks.pictures import save_grid

HERE = Path(__file__).parent
TEXTS = (
    "a red heart",
    "two green stars",
    "a blue square on the left",
    "four black crosses",
    "a yellow circle at the top",
)
SEED, COUNT, SHOWN = 5, 1000, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="folder of a CLIP that was trained on drawings")
    model = cloze.load(parser.parse_args().model, device="cpu")
    size = model.config.image_size
    pixels = np.stack([make_drawing(SEED, number, size)[1] for number in range(COUNT)])
    similarities = compute_text_vectors(model, TEXTS) @ compute_image_vectors(model, pixels).T
    nearest = similarities.topk(SHOWN, dim=1).indices.flatten().tolist()
    save_grid(HERE / "clip-search.png", [pixels[n] for n in nearest], SHOWN)


if __name__ == "__main__":
    main()
