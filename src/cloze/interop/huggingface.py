"""Hugging Face's layout: configurations and weights of known families, both ways, by tables.

Ours is always on the left. Nothing here opens a file.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from cloze.config import in_range, one_of
from cloze.errors import ConfigError, FolderError
from cloze.interop.layout import Description, Entry, Layout, Rule, make_rule, part_of
from cloze.models.configs.base import ModelConfig
from cloze.models.configs.encoder import DEFAULT_LABELS, MAX_LABELS, ProblemType
from cloze.models.registry import get_family

PROBLEM_TYPES: dict[ProblemType, str] = {
    "number": "regression",
    "classes": "single_label_classification",
    "many": "multi_label_classification",
}

# Settings that would change the computation, and the values under which they do not. Any other
# setting that we do not know is reported and ignored.
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
Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class HuggingFaceLayout(Layout):
    """How one family is stored."""

    family: str
    prefix: str  # of the body's weights; folders of the bare body leave it out
    settings: Mapping[str, str]
    architectures: Mapping[str, tuple[str, ...]]  # their classes -> our task heads
    weights: Mapping[str, Entry]  # by module, or by the whole name of a weight
    block: str  # the prefix of block {n}
    harmless: frozenset[str] = frozenset()
    # the bias of the masked-LM head has two names: the first if the head is tied, else the second
    lm_head_biases: tuple[str, str] | None = None
    head_weights: Mapping[str, str] = field(default_factory=dict)  # weights that reveal a head
    optional_parts: Mapping[str, str] = field(default_factory=dict)  # part -> end of its weight
    head_parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parts that only some task heads use -> those heads; "" is the bare body."""
    ignored_settings: frozenset[str] = frozenset()  # they change no result
    special_ids: Mapping[str, str] = field(default_factory=dict)  # setting -> role of the token
    # where one thing has several spellings: to the one in `settings`, and from it to the others
    normalize_settings: Callable[[Settings], Settings] = dict
    extra_settings: Callable[[Settings], Settings] = lambda _: {}

    def read_config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Description:
        """Their configuration as ours.

        Where `architectures` names no known class, the weights show which heads there are.
        """
        self._check_neutral(values)
        normal = self.normalize_settings(values)
        given = {ours: normal[theirs] for ours, theirs in self.settings.items() if theirs in normal}
        if "vocab_size" not in given:
            raise ConfigError(
                "config.json has no vocab_size", fix="add the number of rows of the embedding"
            )
        kind = get_family(self.family).config_class
        if "tie_embeddings" in self.settings:
            given.setdefault("tie_embeddings", True)
        if "labels" in {one.name for one in fields(kind)}:
            given["labels"] = _read_labels(values)
            given["problem_type"] = _read_problem_type(values.get("problem_type"))
        try:
            config = kind(**given)
            config.check_complete()
        except ConfigError as error:  # it has our name of the setting, config.json theirs
            name, _, rest = error.problem.partition(" ")
            problem = f"config.json: {self.settings.get(name, name)} {rest}"
            raise ConfigError(problem, fix=error.fix) from error
        known = {*self.settings.values(), *self.ignored_settings, *NEUTRAL, *ADMINISTRATIVE}
        ignored = [str(key) for key in values if key not in known]
        named = _read_architecture(values)
        if named in self.architectures:
            heads = self.architectures[named]
        else:
            heads = self._find_heads(set(stored))
            if named:  # a custom class around a body whose model_type we know
                ignored.append(f"architectures: {named}")
        return Description(config=config, task_heads=heads, ignored=tuple(sorted(ignored)))

    def write_config(
        self,
        config: ModelConfig,
        task_heads: Iterable[str] = (),
        *,
        dtype: str = "float32",
        special_ids: Mapping[str, int | None] | None = None,
    ) -> dict[str, Any]:
        """Our configuration as they write it."""
        heads = tuple(task_heads)
        settings = {theirs: getattr(config, ours) for ours, theirs in self.settings.items()}
        # their span class takes the number of labels for its two outputs, their choice class none
        labels = getattr(config, "labels", DEFAULT_LABELS)
        if {"span", "choice"} & set(heads):
            labels = DEFAULT_LABELS
        problem = getattr(config, "problem_type", None)
        return {
            "architectures": [self.describe_architecture(heads)],
            "model_type": self.family,
            **settings,
            **self.extra_settings(settings),
            **{theirs: (special_ids or {}).get(role) for theirs, role in self.special_ids.items()},
            "id2label": {str(number): label for number, label in enumerate(labels)},
            "label2id": {label: number for number, label in enumerate(labels)},
            "problem_type": None if problem is None else PROBLEM_TYPES[problem],
            "dtype": dtype,
        }

    def describe_architecture(self, task_heads: Iterable[str]) -> str:
        """Their class for a body with these heads."""
        wanted = set(task_heads)
        for name, heads in self.architectures.items():
            if set(heads) == wanted:
                return name
        raise ConfigError(
            f"no published {self.family} class has the heads {', '.join(sorted(wanted))} together",
            fix="save them as separate folders",
        )

    def map_weights(self, config: ModelConfig, names: Iterable[str]) -> dict[str, Rule]:
        """For each weight of the module how it is stored: several names if ours is fused."""
        rules = {name: self._translate(name) for name in names}
        bias = "task_heads.mlm.bias"
        if self.lm_head_biases and not getattr(config, "tie_embeddings", True) and bias in rules:
            rules[bias] = Rule(self.lm_head_biases[1:])
        return rules

    def find_copies(self, names: Iterable[str]) -> dict[str, str]:
        """The bias of an untied masked-LM head, which they expect under both names."""
        biases = self.lm_head_biases
        return {biases[0]: biases[1]} if biases and biases[1] in set(names) else {}

    def find_parts(self, task_heads: Iterable[str], stored: Iterable[str]) -> dict[str, bool]:
        """A bare body is published with and without its pooler."""
        if tuple(task_heads):
            return {}
        names = tuple(stored)
        return {
            part: any(name.endswith(weight) for name in names)
            for part, weight in self.optional_parts.items()
        }

    def assign_parts(self, description: Description, stored: Iterable[str]) -> dict[str, str]:
        """For each stored weight of the model the part of the module that has it."""
        modules = self._stored_parts(description)
        block = re.compile(re.escape(self.block).replace(re.escape("{n}"), r"(\d+)"))
        num_layers = getattr(description.config, "num_layers", 0)
        biases = self.lm_head_biases or ()
        found: dict[str, str] = {}
        counted: set[str] = set()  # of the two names of one bias, one counts
        for name in sorted(stored):
            normal = self._normalize_name(name)
            for key in (normal, self.prefix + normal):
                inside = block.match(key)
                part = modules.get(key) or modules.get(key.rpartition(".")[0])
                if inside and int(inside[1]) < num_layers:
                    part = "blocks"
                weight = "bias" if key in biases else key
                if part and weight not in counted:
                    counted.add(weight)
                    found[name] = part
        return found

    def _stored_parts(self, description: Description) -> dict[str, str]:
        """The part of the module that has a stored module or weight, blocks left out."""
        heads = description.task_heads or ("",)
        found: dict[str, str] = {}
        is_tied = getattr(description.config, "tie_embeddings", True)
        for ours, entry in self.weights.items():
            part = part_of(ours)
            head = part.removeprefix("task_heads.")
            used = self.head_parts.get(part, (head,) if head != part else heads)
            copied = is_tied and ours == "task_heads.mlm.weight"
            if set(used) & set(heads) and not copied:
                found |= dict.fromkeys(make_rule(entry).names, part)
        if "mlm" in heads and self.lm_head_biases:
            found |= dict.fromkeys(self.lm_head_biases, "task_heads.mlm")
        return found

    def _normalize_name(self, name: str) -> str:
        """A stored name with `weight` and `bias` in norms, and the prefix at most once."""
        key = re.sub(r"\bgamma$", "weight", re.sub(r"\bbeta$", "bias", name))
        while key.startswith(self.prefix * 2):
            key = key.removeprefix(self.prefix)
        return key

    def finish_name(self, name: str, task_heads: Iterable[str]) -> str:
        """Weights of the bare body have no prefix, as in what transformers writes."""
        return name if tuple(task_heads) else name.removeprefix(self.prefix)

    def find_names(
        self,
        description: Description,  # noqa: ARG002
        stored: Iterable[str],
        wanted: Iterable[str],
    ) -> dict[str, str]:
        """Their present name -> the name it is stored under.

        Older folders have `gamma` and `beta` in norms, a body without its prefix or with it twice,
        a masked-LM bias under the decoder.
        """
        expected, names = set(wanted), set(stored)
        found: dict[str, str] = {}
        for name in sorted(names):
            key = self._normalize_name(name)
            if key not in expected and self.prefix + key in expected | self.harmless:
                key = self.prefix + key
            if self.lm_head_biases and key in self.lm_head_biases and key not in expected:
                (bias,) = expected.intersection(self.lm_head_biases) or (key,)
                key = key if bias in names else bias
            if key in found:
                raise FolderError(
                    f"{name} and {found[key]} are two spellings of one weight",
                    fix="keep one of them in the file",
                )
            found[key] = name
        return found

    def _translate(self, name: str) -> Rule:
        if name in self.weights:  # a parameter of its own, not a module's weight or bias
            return make_rule(self.weights[name])
        module, _, leaf = name.rpartition(".")
        prefix = ""
        if block := re.match(r"blocks\.(\d+)\.", module):
            prefix, module = self.block.format(n=block[1]), module[block.end() :]
        return make_rule(self.weights[module], prefix, f".{leaf}")

    def _find_heads(self, stored: set[str]) -> tuple[str, ...]:
        """The heads that the weights reveal, as far as a published class has them together."""
        found = tuple(head for weight, head in self.head_weights.items() if weight in stored)
        return found if found in self.architectures.values() else found[:1]

    def _check_neutral(self, values: Mapping[str, Any]) -> None:
        for key, neutral in NEUTRAL.items():
            unknown = key in values and key not in self.settings.values()
            if unknown and values[key] not in neutral:
                raise ConfigError(
                    f"config.json sets {key} to {values[key]!r}, which changes the computation",
                    fix=f"cloze supports {key} = {neutral[0]!r} only; use a folder that has that",
                )


def _read_architecture(values: Mapping[str, Any]) -> str:
    """Their class; "" in some early folders, which name none."""
    named = values.get("architectures") or ""
    return str(named[0] if isinstance(named, list) else named)


def _read_labels(values: Mapping[str, Any]) -> tuple[str, ...]:
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
            f"id2label has duplicate or missing labels: {', '.join(labels)}",
            fix="give each label a name of its own",
        )
    return labels


def _read_problem_type(theirs: object) -> ProblemType | None:
    if theirs is None:
        return None
    ours = {name: problem for problem, name in PROBLEM_TYPES.items()}
    return ours[one_of("problem_type", str(theirs), ours)]
