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
        list[float],
        typer.Option(
            metavar="X",
            help="How strongly images follow the text; 1 is without guidance. If repeated, the "
            "grid has a column for each.",
        ),
    ] = [3.0],  # noqa: B006 - typer copies it
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
    interpolate: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Draw N images on the way from the first text to the second, or to --other-seed.",
        ),
    ] = None,
    other_seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="With --interpolate, the seed of the last image."),
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
    _check_interpolation(interpolate, other_seed, given)

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.draw import draw, interpolate_images
    from cloze.tasks.pictures import save_grid

    shared: dict[str, Any] = {"steps": steps, "seed": seed, "sampler": sampler}
    with progress(quiet) as show:
        if interpolate is not None:
            shared |= {"count": interpolate, "other_seed": other_seed, "guidance": guidance[0]}
            results: list[Any] = [interpolate_images(opened, *given, **shared, progress=show)]
        else:
            shared |= {"samples": samples, "image": image, "strength": strength, "mask": mask}
            shared |= {"keep_steps": steps_image is not None, "progress": show}
            columns = [draw(opened, given, guidance=value, **shared) for value in guidance]
            results = [one for row in zip(*columns, strict=True) for one in row]
    pictures = [one for result in results for one in result.pictures]
    if out is not None:
        default = interpolate or (samples * len(guidance) if len(guidance) > 1 else None)
        written = save_grid(out, [one.pixels for one in pictures], grid or default)
        if not quiet:
            typer.echo(f"{written}: {len(pictures):,} images", err=True)
    if steps_image is not None:
        strips = [step for one in pictures for step in one.steps]
        save_grid(steps_image, strips, len(pictures[0].steps))
    if as_json:
        print_json_lines(results)


def _check_interpolation(count: int | None, other_seed: int | None, texts: list[str]) -> None:
    if count is None and other_seed is not None:
        raise typer.BadParameter("give --interpolate, too", param_hint="--other-seed")
    wanted = (1, 2) if other_seed is not None else (2,)
    if count is not None and len(texts) not in wanted:
        raise typer.BadParameter(
            "give two texts, or one with --other-seed", param_hint="--interpolate"
        )
