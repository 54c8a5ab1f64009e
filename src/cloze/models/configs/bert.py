"""The configuration of BERT.  Devlin et al. 2018."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from cloze.config import Help, Range
from cloze.models.configs.base import Probability
from cloze.models.configs.encoder import EncoderConfig


def _make_size(num_layers: int, hidden_size: int, num_heads: int) -> dict[str, int]:
    return {
        "num_layers": num_layers,
        "hidden_size": hidden_size,
        "num_heads": num_heads,
        "intermediate_size": 4 * hidden_size,
    }


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """The hyperparameters of a BERT; the defaults are those of BERT-base."""

    family: ClassVar[str] = "bert"
    # base and large of the paper, the smaller ones of Turc et al. 2019
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": _make_size(2, 128, 2),
        "mini": _make_size(4, 256, 4),
        "small": _make_size(4, 512, 8),
        "medium": _make_size(8, 512, 8),
        "base": _make_size(12, 768, 12),
        "large": _make_size(24, 1024, 16),
    }

    type_vocab_size: Annotated[int, Range(1, 1 << 16), Help("Number of segment ids")] = 2
    classifier_dropout: Annotated[
        Probability | None, Help("Dropout probability before the task heads (default: dropout)")
    ] = None
    # "LTR" of the paper's §5.1
    is_causal: Annotated[bool, Help("No token attends to a later one")] = False
