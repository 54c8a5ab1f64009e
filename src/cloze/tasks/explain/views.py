"""The views by name, and which of them apply to a model.  This module imports no torch."""

from dataclasses import dataclass

from cloze.checkpoint.contents import FolderContents
from cloze.checkpoint.model import Model
from cloze.config import suggest
from cloze.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ViewKind:
    """A kind of view: its function, what a model needs for it, and what it shows."""

    function: str  # "package.module:attribute", of (model, text, pair=None, *, …) -> View
    help: str
    parts: tuple[str, ...]  # parts of the model, one of which it needs (`Family.parts`)
    functions: tuple[str, ...] = ()  # functions of the model, one of which it needs, if any


PREDICTIONS = (
    *("fill", "classify", "tag", "answer", "choose"),
    *("generate", "translate", "summarize"),
)
"""Functions with an output that can be explained."""
VIEWS: dict[str, ViewKind] = {
    "attention": ViewKind(
        function="cloze.tasks.explain.attention:attention",
        help="attention weights of every layer and head",
        parts=("attention", "cross_attention", "alignment"),
    ),
    "heads": ViewKind(
        function="cloze.tasks.explain.heads:heads",
        help="what attention heads do over a corpus, ranked",
        parts=("attention",),
    ),
    "saliency": ViewKind(
        function="cloze.tasks.explain.saliency:saliency",
        help="how much each token contributes to an output",
        parts=("embeddings",),
        functions=PREDICTIONS,
    ),
    "neurons": ViewKind(
        function="cloze.tasks.explain.neurons:neurons",
        help="activations of neurons, their factors and clusters",
        parts=("ffn", "recurrent"),
    ),
    "ablation": ViewKind(
        function="cloze.tasks.explain.ablation:ablation",
        help="change of the output without a head, a sublayer or a block",
        parts=("blocks",),
        functions=PREDICTIONS,
    ),
    "patching": ViewKind(
        function="cloze.tasks.explain.patching:patching",
        help="change of the output with parts taken from another text",
        parts=("blocks",),
        functions=PREDICTIONS,
    ),
    "layers": ViewKind(
        function="cloze.tasks.explain.layers:layers",
        help="predictions after each layer, and ranks of candidates",
        parts=("layer_outputs",),
        functions=PREDICTIONS,
    ),
    "cka": ViewKind(
        function="cloze.tasks.explain.cka:cka",
        help="similarity of the layers of one model or of two, over a corpus",
        parts=("hidden_states",),
    ),
    "probe": ViewKind(
        function="cloze.tasks.explain.probe:probe",
        help="accuracy of linear classifiers on the vectors of each layer",
        parts=("hidden_states",),
    ),
    "embeddings": ViewKind(
        function="cloze.tasks.explain.embeddings:embeddings",
        help="vectors of tokens or texts as colored cells and as a map",
        parts=("hidden_states", "word_vectors"),
    ),
    "occurrences": ViewKind(
        function="cloze.tasks.explain.occurrences:occurrences",
        help="vectors of one word in many sentences, by sense and layer",
        parts=("hidden_states", "word_vectors"),
    ),
    "gates": ViewKind(
        function="cloze.tasks.explain.gates:gates",
        help="gates and cell states of recurrent layers",
        parts=("gates",),
    ),
    "layer_weights": ViewKind(
        function="cloze.tasks.explain.layer_weights:layer_weights",
        help="weights of the layers that a task model has learned",
        parts=("layer_weights",),
    ),
    "neighbors": ViewKind(
        function="cloze.tasks.explain.neighbors:neighbors",
        help="nearest words during the training of word vectors",
        parts=("word_vectors",),
    ),
    "backoff": ViewKind(
        function="cloze.tasks.explain.backoff:backoff",
        help="n-grams that the probability of each word comes from",
        parts=("ngrams",),
    ),
}


def list_views(model: Model | FolderContents) -> list[str]:
    """The names of the views that apply to a model."""
    return [name for name in VIEWS if not find_obstacle(model, name)]


def find_obstacle(model: Model | FolderContents, view: str) -> str:
    """Why a view does not apply to a model; empty if it does."""
    kind = VIEWS[view]
    parts = _list_parts(model)
    if not set(kind.parts) & parts:
        return f"it has no {' or '.join(PARTS[part] for part in kind.parts)}"
    if kind.functions and not set(kind.functions) & set(model.capabilities):
        return f"it works with none of {', '.join(kind.functions)}"
    return ""


def _list_parts(model: Model | FolderContents) -> set[str]:
    """The parts of a model: those of its family, and those that depend on its settings."""
    parts = set(model.family.parts)
    if getattr(model.config, "attention", "") == "none":  # of a recurrent translator
        parts.discard("alignment")
    if "recurrent" in parts and getattr(model.config, "cell", "lstm") != "rnn":
        parts.add("gates")
    features = model.task.features if model.task else None
    if features is not None and features.mixed_layers:
        parts.add("layer_weights")
    return parts


def check_view(model: Model, view: str) -> None:
    """Raise unless a view applies to a model; the error says why not, and which views do."""
    if view not in VIEWS:
        raise InputError(f"the view {view!r} is unknown", fix=suggest(view, VIEWS))
    obstacle = find_obstacle(model, view)
    if obstacle:
        others = list_views(model)
        raise InputError(
            f"the view {view} does not apply to this model ({model.family.description}): "
            f"{obstacle}",
            fix=f"use one of these views: {', '.join(others)}"
            if others
            else "use another model, such as cloze-en",
        )


PARTS = {
    "embeddings": "token embeddings",
    "hidden_states": "vectors of each layer",
    "layer_outputs": "layers that its output layer can read",
    "blocks": "Transformer blocks",
    "attention": "attention",
    "cross_attention": "attention from target to source",
    "alignment": "alignment of target and source",
    "ffn": "feed-forward networks",
    "recurrent": "recurrent layers",
    "gates": "recurrent layers with gates",
    "layer_weights": "task model with learned weights of layers",
    "ngrams": "n-gram tables",
    "word_vectors": "word vectors",
}
"""What the names in `Family.parts` mean."""
