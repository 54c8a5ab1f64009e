"""Train the decoder of a built-in diffusion model further on a CPU; encoder and network stay.

    python bench/builtin_draw_decoder.py src/cloze/builtin/cloze-draw ../shared/data/openmoji \\
        --minutes 6 --out runs/decoder

An autoencoder that was trained for seconds decodes some colors wrongly, although its latents have
them. The decoder learns to reconstruct emoji and drawings from their latents with a little noise:
|x − x̂| + (x − x̂)², as in training. --out is a folder in bfloat16, with the reference to the text
encoder that MODEL has; write its card with bench/builtin_draw.py's facts.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from builtin_draw import save_small
from builtin_draw_train import read_emoji

import cloze
from cloze.data.images.drawings import make_drawing
from cloze.objectives.diffusion import scale_pixels

NOISE, LR, WARMUP, BATCH = 0.05, 1.5e-3, 20, 24
SKIN_TONES = 5  # of pictures with a skin tone, one of so many is used


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("openmoji", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--drawings", type=int, default=1500)
    given = parser.parse_args()
    model = cloze.load(given.model, device="cpu")
    module, size = model.module, model.config.image_size
    emoji = read_emoji(given.openmoji, size)
    toned = [one.pixels for one in emoji if one.has_skin_tone][::SKIN_TONES]
    drawn = [make_drawing(0, number, size)[1] for number in range(given.drawings)]
    plain = [one.pixels for one in emoji if not one.has_skin_tone]
    pixels = torch.from_numpy(np.stack([*plain, *toned, *drawn]))
    latents = torch.cat([module.encode_images(scale_pixels(some)) for some in pixels.split(64)])
    module.requires_grad_(False)
    weights = list(module.autoencoder.decoder.parameters())
    for weight in weights:
        weight.requires_grad_(True)
    optimizer = torch.optim.AdamW(weights, lr=LR, weight_decay=0.0)
    torch.manual_seed(0)
    began, step = time.monotonic(), 0
    while (done := (time.monotonic() - began) / (60 * given.minutes)) < 1:
        chosen = torch.randint(len(pixels), (BATCH,))
        noisy = latents[chosen] + NOISE * torch.randn(BATCH, *latents.shape[1:])
        difference = module.autoencoder.decode(noisy) - scale_pixels(pixels[chosen])
        loss = difference.abs().mean() + difference.square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1.0, step / WARMUP) * max(1 - done, 0.02)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    save_small(model, given.out, "bfloat16")


if __name__ == "__main__":
    main()
