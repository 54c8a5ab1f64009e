"""Write drawings of colored shapes with exact captions, to train models of images on.

python tools/make_drawings.py drawings --count 20000 --size 64
"""

import argparse
import json
from pathlib import Path

from cloze.data.images.decode import encode_png
from cloze.data.images.drawings import make_drawing
from cloze.files import write_bytes, write_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--count", type=int, default=1000, help="number of drawings")
    parser.add_argument("--size", type=int, default=64, help="width and height in pixels")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other drawings")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(given.count):
        drawing, pixels = make_drawing(given.seed, number, given.size)
        name = f"{number:06}.png"
        write_bytes(given.out / name, encode_png(pixels))
        lines.append(json.dumps({"file_name": name, "text": drawing.caption}))
    write_text(given.out / "metadata.jsonl", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
