"""Weight names of our own families in folders of format version 1: the old one is on the left."""

import re
from collections.abc import Mapping, Sequence

# By family (pattern, replacement), applied to a name one after another.
VERSION_1_WEIGHTS: Mapping[str, Sequence[tuple[str, str]]] = {
    "transformer": (
        (r"^(source|target)\.", r"\1_embeddings."),
        (r"^positions\.", "position_encoding."),
        (r"_residual\.norm\.", "_norm."),
        (r"\.cross(?=[._])", ".cross_attention"),
        (r"\.feed_forward(?=[._])", ".ffn"),
        (r"\.ffn\.inner\.", ".ffn.up."),
        (r"\.ffn\.outer\.", ".ffn.down."),
    ),
    "seq2seq": (
        (r"^(source|target)\.", r"\1_embeddings."),
        (r"^cells\.", "decoder."),
        (r"^mix\.", "combine."),
        (r"^score\.sharpness$", "score.scale"),
    ),
    "lstm": ((r"^words\.", "embeddings."), (r"^stack\.", "rnn.")),
    "nnlm": ((r"^words\.", "embeddings."),),
}


def rename_version_1_weight(family: str, name: str) -> str:
    """The present name of a weight that a folder of format version 1 stores as `name`."""
    for pattern, replacement in VERSION_1_WEIGHTS.get(family, ()):
        name = re.sub(pattern, replacement, name)
    return name
