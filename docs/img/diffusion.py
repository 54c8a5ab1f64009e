"""The pictures of docs/diffusion.md that need no trained model.

    python docs/img/diffusion.py        # writes docs/img/diffusion-*.png

diffusion-samples.png and diffusion-steps.png are written by bench/draw.py.
"""

from pathlib import Path

import torch

from cloze.data.images.drawings import make_drawing
from cloze.nn.noise_schedule import DiffusionSchedule, add_noise
from cloze.objectives.diffusion import scale_pixels
from cloze.tasks.pictures import save_grid

HERE = Path(__file__).parent
NUMBERS = (7, 8, 20)
TIMES = torch.tensor([0, 100, 200, 300, 400, 500, 650, 800, 999])


def main() -> None:
    rows = []
    for number in NUMBERS:
        pixels = torch.from_numpy(make_drawing(0, number)[1])[None]
        x = scale_pixels(pixels).expand(len(TIMES), -1, -1, -1)
        noise = torch.randn(x[:1].shape, generator=torch.Generator().manual_seed(0))
        noisy = add_noise(x, noise.expand_as(x), DiffusionSchedule.make("cosine").level(TIMES))
        rows += list(((noisy.clamp(-1, 1) + 1) * 127.5).byte().permute(0, 2, 3, 1).numpy())
    save_grid(HERE / "diffusion-forward.png", rows, len(TIMES))


if __name__ == "__main__":
    main()
