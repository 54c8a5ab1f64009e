"""`explain.layer_weights`: how much a task model uses each layer of a frozen encoder."""

from cloze.checkpoint.model import Model
from cloze.files import PathLike
from cloze.plot.heatmap import Heatmap
from cloze.plot.page import Fact, Facts
from cloze.plot.view import View
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.info import describe_features


def layer_weights(model: Model | PathLike, text: str | None = None) -> View:  # noqa: ARG001
    """Show the weights with which a task model adds the layers of an ELMo or another encoder.

    γ·Σⱼ softmax(s)ⱼ·hⱼ, Peters et al. 2018, eq. 1: the weights sⱼ and the scale γ are learned with
    the task (`cloze finetune --recipe features --layers scalar-mix`).

    Args:
        model: a task model that reads a weighted sum of layers, or its folder.
        text: not used: the weights are the same for every text.
    """
    opened = open_model(model, "layer_weights")
    found = describe_features(opened) or {}
    places = [
        (place, found[f"{prefix}layer_weights"], found[f"{prefix}scale"])
        for prefix, place in (("", "input"), ("output_", "output"))
        if f"{prefix}layer_weights" in found
    ]
    weights = [values for _, values, _ in places]
    drawing = Heatmap(
        title="Weights of the layers",
        values=weights,
        rows=[f"{place} of the task model" for place, _, _ in places],
        columns=[f"layer {n}" for n in range(len(weights[0]))],
        percent=True,
        note="Layer 0 are the embeddings below the first layer.",
    )
    facts = [
        Fact(label=f"scale γ at the {place}", text=f"{scale:.4g}", value=scale)
        for place, _, scale in places
    ]
    data = {place: {"weights": values, "scale": scale} for place, values, scale in places}
    return View(title="Weights of the layers", figures=[Facts(facts), drawing], data=data)
