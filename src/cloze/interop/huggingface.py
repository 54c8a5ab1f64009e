"""Hugging Face's names for what we have: configurations and weights, both ways, as tables.

Ours is always on the left. Nothing here opens a file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cloze.config import in_range, one_of
from cloze.errors import ConfigError, FolderError
from cloze.interop.layouts import BERT, DISTILBERT, Layout
from cloze.interop.modernbert import MODERNBERT
from cloze.models.configs.encoder import DEFAULT_LABELS, MAX_LABELS, EncoderConfig, ProblemType
from cloze.models.registry import FAMILIES

LAYOUTS = {"bert": BERT, "distilbert": DISTILBERT, "modernbert": MODERNBERT}

PROBLEMS: dict[ProblemType, str] = {
    "number": "regression",
    "classes": "single_label_classification",
    "many": "multi_label_classification",
}

# Settings that would change the mathematics, and the values under which they do not. Any other
# setting we do not know is listed and ignored.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
# About who wrote the folder and how it is run, never about what it computes.
ADMINISTRATIVE = frozenset(
    """
    architectures model_type transformers_version dtype torch_dtype _name_or_path
    id2label label2id num_labels problem_type finetuning_task use_cache gradient_checkpointing
    return_dict output_attentions output_hidden_states output_past chunk_size_feed_forward
    bos_token_id eos_token_id tie_weights_ directionality pooler_fc_size pooler_type
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Published:
    """What a published config.json says."""

    config: EncoderConfig
    heads: tuple[str, ...]
    # settings we do not know, which do not change the mathematics, and a class we do not know
    ignored: tuple[str, ...]


def read_config(values: Mapping[str, Any], stored: Iterable[str] = ()) -> Published:
    """Their configuration as ours. `stored`: the names of the weights, if the heads are unsaid."""
    family = values.get("model_type")
    if not isinstance(family, str) or family not in LAYOUTS:
        raise FolderError(
            f"model_type is {family!r}, a family this version does not read",
            fix=f"the families are {', '.join(LAYOUTS)}",
        )
    layout = LAYOUTS[family]
    for key, neutral in NEUTRAL.items():
        unknown = key in values and key not in layout.settings.values()
        if unknown and values[key] not in neutral:
            raise ConfigError(
                f"config.json sets {key} to {values[key]!r}, which changes the mathematics",
                fix=f"cloze computes {key} = {neutral[0]!r} only; use a folder that has that",
            )
    told = layout.settled(values)
    given = {ours: told[theirs] for ours, theirs in layout.settings.items() if theirs in told}
    if "vocab_size" not in given:
        raise ConfigError(
            "config.json has no vocab_size", fix="add the number of rows in the table"
        )
    given.setdefault("tie_embeddings", True)
    labels, problem = _labels(values), _problem(values.get("problem_type"))
    try:
        config = FAMILIES[family].config_class(**given, labels=labels, problem_type=problem)
        config.check_complete()
    except ConfigError as error:  # says our name of a setting, where they wrote their own
        name, _, rest = error.problem.partition(" ")
        said = f"config.json: {layout.settings.get(name, name)} {rest}"
        raise ConfigError(said, fix=error.fix) from error
    known = {*layout.settings.values(), *layout.silent, *NEUTRAL, *ADMINISTRATIVE}
    ignored = [str(key) for key in values if key not in known]
    called = _class(values)
    if called in layout.architectures:
        heads = layout.architectures[called]
    else:
        heads = _shown_heads(layout, set(stored))
        if called:  # someone's own class around a body that model_type says we know
            ignored.append(f"architectures: {called}")
    return Published(config, heads, tuple(sorted(ignored)))


def write_config(
    config: EncoderConfig,
    heads: Iterable[str],
    dtype: str = "float32",
    special: Mapping[str, int | None] | None = None,
) -> dict[str, Any]:
    """Our configuration as they write it; `special`: the tokenizer's ids by role, cls and sep."""
    layout, heads = LAYOUTS[config.family], tuple(heads)
    # their span class takes the number of labels for its two outputs, and their choice class none
    labels = DEFAULT_LABELS if {"span", "choice"} & set(heads) else config.labels
    settings = {theirs: getattr(config, ours) for ours, theirs in layout.settings.items()}
    return {
        "architectures": [architecture(config.family, heads)],
        "model_type": config.family,
        **settings,
        **layout.besides(settings),
        **{theirs: (special or {}).get(role) for theirs, role in layout.special.items()},
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "problem_type": None if config.problem_type is None else PROBLEMS[config.problem_type],
        "dtype": dtype,
    }


def architecture(family: str, heads: Iterable[str]) -> str:
    """Their class for a body with these heads."""
    wanted = set(heads)
    for name, those in LAYOUTS[family].architectures.items():
        if set(those) == wanted:
            return name
    raise ConfigError(
        f"no published {family} class carries the heads {', '.join(sorted(wanted))} together",
        fix="save them as separate folders",
    )


def weight_names(config: EncoderConfig, ours: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each of our weights theirs: one name, or the three that our fused one holds."""
    layout = LAYOUTS[config.family]
    names = {name: _translate(name, layout) for name in ours}
    if layout.biases and not config.tie_embeddings and "task_heads.mlm.bias" in names:
        names["task_heads.mlm.bias"] = layout.biases[1:]
    return names


def copies(config: EncoderConfig, theirs: Iterable[str]) -> dict[str, str]:
    """Names under which they expect a weight once more -> the name that holds it."""
    biases, written = LAYOUTS[config.family].biases, set(theirs)
    return {biases[0]: biases[1]} if biases and biases[1] in written else {}


def stored_names(
    config: EncoderConfig, stored: Iterable[str], wanted: Iterable[str]
) -> dict[str, str]:
    """Their current name -> the name it is stored under, old spellings undone.

    `gamma`/`beta` in norms, a body without its prefix or with it twice, a masked-LM bias under the
    decoder.
    """
    layout, expected = LAYOUTS[config.family], set(wanted)
    names = set(stored)
    found: dict[str, str] = {}
    for name in sorted(names):
        key = re.sub(r"\bgamma$", "weight", re.sub(r"\bbeta$", "bias", name))
        while key.startswith(layout.base * 2):
            key = key.removeprefix(layout.base)
        if key not in expected and layout.base + key in expected | layout.harmless:
            key = layout.base + key
        if layout.biases and key in layout.biases and key not in expected:
            (wanted_bias,) = expected.intersection(layout.biases) or (key,)
            key = key if wanted_bias in names else wanted_bias
        if key in found:
            raise FolderError(
                f"{name} and {found[key]} are two spellings of one weight",
                fix="keep one of them in the file",
            )
        found[key] = name
    return found


def harmless(config: EncoderConfig) -> frozenset[str]:
    """Stored names that need no word: buffers and copies of tied weights."""
    return LAYOUTS[config.family].harmless


def _translate(name: str, layout: Layout) -> tuple[str, ...]:
    if name in layout.weights:  # a parameter of its own, not a module's weight or bias
        return (str(layout.weights[name]),)
    module, _, leaf = name.rpartition(".")
    prefix = ""
    if block := re.match(r"blocks\.(\d+)\.", module):
        prefix, module = layout.block.format(n=block[1]), module[block.end() :]
    theirs = layout.weights[module]
    parts = (theirs,) if isinstance(theirs, str) else theirs
    return tuple(f"{prefix}{part}.{leaf}" for part in parts)


def _class(values: Mapping[str, Any]) -> str:
    """Their class; "" in some early folders, which do not say."""
    named = values.get("architectures") or ""
    return str(named[0] if isinstance(named, list) else named)


def _shown_heads(layout: Layout, stored: set[str]) -> tuple[str, ...]:
    """The heads that weights tell, as far as a published class has them together."""
    told = tuple(head for sign, head in layout.signs.items() if sign in stored)
    return told if told in layout.architectures.values() else told[:1]


def _labels(values: Mapping[str, Any]) -> tuple[str, ...]:
    names = values.get("id2label")
    if names is None:
        count = in_range("num_labels", values.get("num_labels", 2), 1, MAX_LABELS)
        return tuple(f"LABEL_{number}" for number in range(count))
    if not isinstance(names, dict) or set(names) != {str(n) for n in range(len(names))}:
        raise ConfigError(
            "id2label does not number its labels 0, 1, 2 …",
            fix='write it as {"0": "first label", "1": "second label"}',
        )
    labels = tuple(str(names[str(number)]) for number in range(len(names)))
    if None in names.values() or len(set(labels)) < len(labels):
        raise ConfigError(
            f"id2label has labels of one name, or of none: {', '.join(labels)}",
            fix="give each label a name of its own",
        )
    return labels


def _problem(theirs: object) -> ProblemType | None:
    if theirs is None:
        return None
    ours = {name: problem for problem, name in PROBLEMS.items()}
    return ours[one_of("problem_type", str(theirs), ours)]
