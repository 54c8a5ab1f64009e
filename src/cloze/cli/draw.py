"""`cloze draw`: images from texts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    Quiet,
    Seed,
    TextColumn,
    Texts,
    progress,
    read_inputs,
)
from cloze.cli.format import print_json_lines


def draw(
    model: ModelFolder,
    texts: Texts = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="PNG file to write; several images as a grid."),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, metavar="N", help="Number of images of each text.")
    ] = 1,
    steps: Annotated[
        int,
        typer.Option("--sampling-steps", min=1, metavar="N", help="Steps from noise to an image."),
    ] = 25,
    guidance: Annotated[
        float,
        typer.Option(
            metavar="X", help="How strongly images follow the text; 1 is without guidance."
        ),
    ] = 3.0,
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="ddpm, ddim, dpm-solver++ or euler (default: the model's)."
        ),
    ] = None,
    image: Annotated[Path | None, typer.Option(metavar="FILE", help="Image to start from.")] = None,
    strength: Annotated[
        float,
        typer.Option(metavar="X", help="How much of --image is replaced: 0 nothing, 1 everything."),
    ] = 0.7,
    mask: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --image, what is drawn anew: the white pixels."),
    ] = None,
    grid: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="COLUMNS", help="Columns of the grid (default: about a square)."
        ),
    ] = None,
    steps_image: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a strip of the image after some of the steps."
        ),
    ] = None,
    files: Files = None,
    text_column: TextColumn = None,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw images of texts with a diffusion model."""
    given = [row.text for row in read_inputs(texts, files, text_column)]
    if out is None and not as_json:
        raise typer.BadParameter("name the file to write", param_hint="--out")

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.draw import draw, save_grid

    with progress(quiet) as show:
        results: Any = draw(
            opened,
            given,
            samples=samples,
            steps=steps,
            guidance=guidance,
            seed=seed,
            sampler=sampler,
            image=image,
            strength=strength,
            mask=mask,
            keep_steps=steps_image is not None,
            progress=show,
        )
    pictures = [one for result in results for one in result.pictures]
    if out is not None:
        written = save_grid(out, [one.pixels for one in pictures], grid)
        if not quiet:
            typer.echo(f"{written}: {len(pictures):,} images", err=True)
    if steps_image is not None:
        strips = [step for one in pictures for step in one.steps]
        save_grid(steps_image, strips, len(pictures[0].steps))
    if as_json:
        print_json_lines(results)
