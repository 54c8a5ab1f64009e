"""Make the built-in diffusion model from the folder of a run: few bytes per weight, a model card.

    python bench/builtin_draw.py runs/draw --scores scores.json --machine "one NVIDIA H200"

writes src/cloze/builtin/cloze-draw, at most 15 MB in total. The text encoder must be cloze-en: it
and its tokenizer are not stored twice, but named with the checksum of the weights. Scores are a
JSON object of names and fractions. `--storage` is bfloat16 (2 bytes per weight; the preset micro
fits), or float8 (1 byte for matrices and kernels of the network, while the autoencoder stays in
bfloat16; the preset mini with model.blocks_per_stage=1 fits). Prints by how much predictions and
images differ from those of the run, with the same seeds.
"""

import argparse
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from safetensors.torch import load_file, save_file

import cloze
from cloze.checkpoint.atomic import atomic_folder
from cloze.checkpoint.model import Model
from cloze.checkpoint.source import BUILTIN, builtin
from cloze.checkpoint.weights import WEIGHTS_FILE
from cloze.data.images.drawings import list_captions, make_drawing
from cloze.errors import InputError
from cloze.files import compute_sha256
from cloze.make.float8 import to_float8
from cloze.nn.noise_schedule import NUM_TIMES, add_noise
from cloze.objectives.diffusion import scale_pixels
from cloze.plot.format import format_percent
from cloze.report.model_card import ModelFacts, TrainingText, read_scores, write_model_card
from cloze.tasks.image_batches import encode_prompts
from common import print_result, versions

MAX_BYTES = 15_000_000
TEXT_ENCODER = "cloze-en"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")  # those of cloze-en
SUMMARY = (
    "A small diffusion model of emoji-like pictures that is part of the cloze package. It draws "
    "images of 64 × 64 pixels from English texts, without a download."
)
TEXTS = [
    TrainingText(
        name="OpenMoji, pictures and names; scaled to 64 × 64 pixels, on white",
        licence="[CC BY-SA 4.0](https://creativecommons.org/licenses/by-sa/4.0/)",
        source="All emojis designed by OpenMoji – the open-source emoji and icon project, "
        "https://openmoji.org",
    ),
    TrainingText(
        name="Drawings of colored shapes",
        licence="Apache-2.0",
        source="tools/make_drawings.py of this project",
    ),
]
LIMITATIONS = [
    "The model draws small pictures of single things and people in the style of OpenMoji, and "
    "colored shapes; it knows no photographs and no text in pictures.",
    "It was trained for minutes on a few thousand pictures. Texts unlike their captions give "
    "unrelated pictures.",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=BUILTIN / "cloze-draw")
    parser.add_argument("--storage", choices=("bfloat16", "float8"), default="bfloat16")
    parser.add_argument("--scores", type=Path, help="for the model card")
    parser.add_argument("--machine", help="for the model card")
    parser.add_argument("--licence", default="cc-by-sa-4.0", help="of the weights")
    parser.add_argument("--force", action="store_true")
    given = parser.parse_args()
    model = share_text_encoder(cloze.load(given.run, device="cpu"))
    with tempfile.TemporaryDirectory() as work:
        made = save_small(model, Path(work) / given.out.name, given.storage)
        if given.scores and given.machine:
            facts = ModelFacts(
                summary=SUMMARY,
                texts=TEXTS,
                machine=given.machine,
                licence=given.licence,
                limitations=LIMITATIONS,
                storage=f"Weights are stored in {given.storage}.",
            )
            write_model_card(given.run, made, facts, read_scores(given.scores))
        check_size(made)
        compare(model, cloze.load(made, device="cpu"))
        with atomic_folder(given.out, force=given.force) as folder:
            shutil.copytree(made, folder, dirs_exist_ok=True)


def share_text_encoder(model: Model) -> Model:
    """The model with a reference to the built-in text encoder, whose weights it must have."""
    text = model.config.text
    if text is None:
        return model
    folder = builtin()[TEXT_ENCODER]
    shared = cloze.load(folder, device="cpu").module.state_dict()
    own = model.module.text_encoder.state_dict()
    if text.config.family != cloze.load(folder, device="cpu").config.family or not all(
        torch.equal(weight, shared[name]) for name, weight in own.items()
    ):
        raise InputError(
            f"the text encoder of the run is not {TEXT_ENCODER}",
            fix=f"train with --text-encoder {TEXT_ENCODER}",
        )
    reference = replace(text, builtin=TEXT_ENCODER, sha256=compute_sha256(folder / WEIGHTS_FILE))
    config = replace(model.config, text=reference)
    model.module.config = config
    return replace(model, config=config)


def save_small(model: Model, folder: Path, storage: str) -> Path:
    """Save the model with few bytes per weight."""
    with atomic_folder(folder) as work:
        model.save_into(work)
        if model.config.text is not None:
            for name in TOKENIZER_FILES:
                (work / name).unlink(missing_ok=True)
        file = work / WEIGHTS_FILE
        tensors = {name: shrink(name, one, storage) for name, one in load_file(file).items()}
        file.unlink()  # what was read may still be mapped to it
        save_file(tensors, file, metadata={"format": "pt"})
    return folder


def shrink(name: str, tensor: torch.Tensor, storage: str) -> torch.Tensor:
    if tensor.dim() < 2:  # norms and biases
        return tensor.bfloat16() if tensor.dim() else tensor
    if storage == "float8" and name.startswith("denoiser."):
        return to_float8(tensor.flatten(1)).view(tensor.shape)
    return tensor.bfloat16()


def check_size(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    total = sum(path.stat().st_size for path in files)
    for path in files:
        print(f"{path.stat().st_size:>12,}  {path.relative_to(folder)}")
    print(f"{total:>12,}  in total; the maximum is {MAX_BYTES:,}")
    if total > MAX_BYTES:
        raise InputError("the folder is too large", fix="use the preset micro, or --storage float8")


@torch.inference_mode()
def compare(model: Model, small: Model) -> None:
    """Print how far predictions and images are from those of the run."""
    size, captions = model.config.image_size, list_captions()[::24]
    pixels = np.stack([make_drawing(5, n, size)[1] for n in range(len(captions))])
    x = model.module.encode_images(scale_pixels(torch.from_numpy(pixels)))
    times = torch.linspace(0, NUM_TIMES - 1, len(x)).long()
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    noisy = add_noise(x, noise, model.module.schedule.level(times))
    prompts = encode_prompts(model, captions)
    exact, rounded = (
        one.module(noisy, times, prompts.text, prompts.mask) for one in (model, small)
    )
    error = float((exact - rounded).norm() / exact.norm().clamp(min=1e-12))
    images = [
        np.stack([one.pixels for one in cloze.draw(each, captions, steps=20)]).astype(float)
        for each in (model, small)
    ]
    table = Table("difference from the run", "value")
    table.add_row("predictions, relative", format_percent(error))
    table.add_row("images, mean of 255", f"{np.abs(images[0] - images[1]).mean():.2f}")
    print_result(table, versions("torch"))


if __name__ == "__main__":
    main()
