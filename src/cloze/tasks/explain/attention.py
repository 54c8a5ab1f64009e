"""`explain.attention`: the attention weights of every layer and head.

h heads, q queries, k keys.
"""

import torch

from cloze.checkpoint.model import Model
from cloze.files import PathLike
from cloze.interpret.capture import capture
from cloze.nn.attention import Attention
from cloze.nn.utils import eval_mode
from cloze.plot.heatmap import Heatmap
from cloze.plot.view import View
from cloze.tasks.explain.inputs import encode_input
from cloze.tasks.explain.open_model import open_model


def attention(model: Model | PathLike, text: str, pair: str | None = None) -> View:
    """Show how much each token attends to each other token, as the mean of all heads of a layer.

    Args:
        model: a model, its folder, or the name of a built-in model.
        text: the text.
        pair: the second text of a pair.
    """
    opened = open_model(model, "attention")
    encoded = encode_input(opened, text, pair)
    ids = torch.tensor([encoded.ids], device=opened.device)
    types = torch.tensor([encoded.type_ids], device=opened.device)
    with (
        torch.inference_mode(),
        eval_mode(opened.module),
        capture(opened.module, Attention) as captured,
    ):
        opened.module(ids, None, types)
    weights = [one[0].float().cpu() for one in captured]  # h q k of each layer
    figures = [
        Heatmap(
            title=f"Layer {number}",
            values=layer.mean(0).tolist(),
            rows=encoded.tokens,
            columns=encoded.tokens,
            percent=True,
        )
        for number, layer in enumerate(weights, 1)
    ]
    return View(
        title="Attention",
        figures=figures,
        data={"tokens": encoded.tokens, "weights": [layer.tolist() for layer in weights]},
        note=encoded.note,
    )
