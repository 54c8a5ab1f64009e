"""Hugging Face's layout: translate configurations and weight names in both directions, by tables.

Tables map our names to theirs. Nothing here opens a file.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from cloze.config import in_range
from cloze.errors import ConfigError, FolderError
from cloze.interop.layout import Description, Entry, Layout, Rule, make_rule, part_of
from cloze.models.configs.base import ModelConfig
from cloze.models.configs.encoder import DEFAULT_LABELS, MAX_LABELS
from cloze.models.registry import get_family

# Settings that change the computation, with the values that we support. Other unknown settings are
# reported and ignored.
SUPPORTED_VALUES: dict[str, tuple[object, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
# Settings that do not change the computation.
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
    """The layout of one family."""

    family: str
    prefix: str  # of the body's weights; base models omit it
    settings: Mapping[str, str]
    architectures: Mapping[str, tuple[str, ...]]  # their classes -> our task heads
    weights: Mapping[str, Entry]  # by module, or by the full name of a weight
    block: str  # the prefix of block {n}'s weights
    model_type: str | None = None  # None: the name of the family
    token_types: bool = True
    harmless: frozenset[str] = frozenset()
    harmless_pattern: str | None = None  # more of them, as a regular expression
    # the bias of the masked-LM head has two names: the first if the head is tied, else the second
    lm_head_biases: tuple[str, str] | None = None
    # embedding table -> the LM head's weight, under which some classes store it if both are tied
    tied_names: Mapping[str, str] = field(default_factory=dict)
    head_weights: Mapping[str, str] = field(default_factory=dict)  # weight -> head that has it
    optional_parts: Mapping[str, str] = field(default_factory=dict)  # part -> suffix of its weight
    head_parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parts that only some task heads use -> those heads; "" is the bare body."""
    ignored_settings: frozenset[str] = frozenset()  # without effect on the results
    special_ids: Mapping[str, str] = field(default_factory=dict)  # setting -> role of the token
    # for settings with several names: translate to the names in `settings`, and add the others
    normalize_settings: Callable[[Settings], Settings] = dict
    extra_settings: Callable[[Settings], Settings] = lambda _: {}

    def read_config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Description:
        """Translate their configuration to ours.

        If `architectures` has no known class, the task heads follow from the names of the weights.
        """
        self._check_supported(values)
        normal = self.normalize_settings(values)
        given = {ours: normal[theirs] for ours, theirs in self.settings.items() if theirs in normal}
        if "vocab_size" not in given:
            raise ConfigError(
                "config.json has no vocab_size", fix="add the number of token embeddings"
            )
        kind = get_family(self.family).config_class
        if "tie_embeddings" in self.settings:
            given.setdefault("tie_embeddings", True)
        if "labels" in {one.name for one in fields(kind)}:
            given["labels"] = _read_labels(values)
            given["problem_type"] = values.get("problem_type")
        try:
            config = kind(**given)
            config.check_complete()
        except ConfigError as error:  # replace our name of the setting by theirs
            name, _, rest = error.problem.partition(" ")
            problem = f"config.json: {self.settings.get(name, name)} {rest}"
            raise ConfigError(problem, fix=error.fix) from error
        known = {
            *self.settings.values(),
            *self.ignored_settings,
            *SUPPORTED_VALUES,
            *ADMINISTRATIVE,
        }
        ignored = [str(key) for key in values if key not in known]
        named = read_architecture(values)
        if named in self.architectures:
            heads = self.architectures[named]
        else:
            heads = self._find_heads(set(stored))
            if named:  # a custom class with a known model_type
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
        """Translate our configuration to theirs."""
        heads = tuple(task_heads)
        settings = {theirs: getattr(config, ours) for ours, theirs in self.settings.items()}
        # their span class needs two labels for its two outputs; their choice class has no labels
        labels = getattr(config, "labels", DEFAULT_LABELS)
        if {"span", "choice"} & set(heads):
            labels = DEFAULT_LABELS
        return {
            "architectures": [self.describe_architecture(heads)],
            "model_type": self.model_type or self.family,
            **settings,
            **self.extra_settings(settings),
            **{theirs: (special_ids or {}).get(role) for theirs, role in self.special_ids.items()},
            "id2label": {str(number): label for number, label in enumerate(labels)},
            "label2id": {label: number for number, label in enumerate(labels)},
            "problem_type": getattr(config, "problem_type", None),
            "dtype": dtype,
        }

    def describe_architecture(self, task_heads: Iterable[str]) -> str:
        """Their class for a model with these task heads."""
        wanted = set(task_heads)
        for name, heads in self.architectures.items():
            if set(heads) == wanted:
                return name
        raise ConfigError(
            f"transformers has no {self.family} class with the heads {', '.join(sorted(wanted))}",
            fix="save the heads as separate models",
        )

    def map_weights(self, config: ModelConfig, names: Iterable[str]) -> dict[str, Rule]:
        """The rule of each weight of the module; one of ours may be several of theirs (qkv)."""
        rules = {name: self._translate(name) for name in names}
        bias = "task_heads.mlm.bias"
        if self.lm_head_biases and not getattr(config, "tie_embeddings", True) and bias in rules:
            rules[bias] = Rule(self.lm_head_biases[1:])
        return rules

    def find_copies(self, names: Iterable[str]) -> dict[str, str]:
        """The bias of an untied masked-LM head, which is stored under both names."""
        biases = self.lm_head_biases
        return {biases[0]: biases[1]} if biases and biases[1] in set(names) else {}

    def find_parts(self, task_heads: Iterable[str], stored: Iterable[str]) -> dict[str, bool]:
        """Base models are published with and without a pooler."""
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
        """The weights of base models have no prefix, as in transformers."""
        return name if tuple(task_heads) else name.removeprefix(self.prefix)

    def find_names(
        self,
        description: Description,
        stored: Iterable[str],
        wanted: Iterable[str],
    ) -> dict[str, str]:
        """Current name of a weight -> the name it is stored under.

        Older folders have `gamma` and `beta` in norms, a missing or doubled prefix, or the bias of
        the masked-LM head under the decoder. A tied embedding table may have the head's name.
        """
        expected, names = set(wanted), set(stored)
        found: dict[str, str] = {}
        for name in sorted(names):
            key = self._normalize_name(name)
            if self.harmless_pattern and re.fullmatch(self.harmless_pattern, key):
                continue
            if key not in expected and self.prefix + key in expected | self.harmless:
                key = self.prefix + key
            if self.lm_head_biases and key in self.lm_head_biases and key not in expected:
                (bias,) = expected.intersection(self.lm_head_biases) or (key,)
                key = key if bias in names else bias
            if key in found:
                raise FolderError(
                    f"{name} and {found[key]} are two names of one weight",
                    fix="remove one of them from the file",
                )
            found[key] = name
        return self._find_tied(description, found) | found

    def _find_tied(self, description: Description, found: Mapping[str, str]) -> dict[str, str]:
        """Tied embedding tables -> the name of the LM head's weight, if it is stored."""
        if not self.tied_names or not getattr(description.config, "tie_embeddings", False):
            return {}
        return {table: found[head] for table, head in self.tied_names.items() if head in found}

    def _translate(self, name: str) -> Rule:
        if name in self.weights:  # a parameter of its own, not a module's weight or bias
            return make_rule(self.weights[name])
        module, _, leaf = name.rpartition(".")
        prefix = ""
        if block := re.match(r"blocks\.(\d+)\.", module):
            prefix, module = self.block.format(n=block[1]), module[block.end() :]
        return make_rule(self.weights[module], prefix, f".{leaf}")

    def _find_heads(self, stored: set[str]) -> tuple[str, ...]:
        """The task heads whose weights exist; only the first if no class has all of them."""
        found = tuple(head for weight, head in self.head_weights.items() if weight in stored)
        return found if found in self.architectures.values() else found[:1]

    def _check_supported(self, values: Mapping[str, Any]) -> None:
        for key, supported in SUPPORTED_VALUES.items():
            is_ours = key in self.settings.values()
            if key in values and not is_ours and values[key] not in supported:
                raise ConfigError(
                    f"config.json sets {key} to {values[key]!r}, which is not supported",
                    fix=f"use a model with {key} = {supported[0]!r}",
                )


def read_architecture(values: Mapping[str, Any]) -> str:
    """Their class; "" if there is none, as in some early folders."""
    named = values.get("architectures") or ""
    return str(named[0] if isinstance(named, list) else named)


def _read_labels(values: Mapping[str, Any]) -> tuple[str, ...]:
    names = values.get("id2label")
    if names is None:
        count = in_range("num_labels", values.get("num_labels", 2), 1, MAX_LABELS)
        return tuple(f"LABEL_{number}" for number in range(count))
    if not isinstance(names, dict) or set(names) != {str(n) for n in range(len(names))}:
        raise ConfigError(
            "the keys of id2label are not 0, 1, 2 …",
            fix='write it as {"0": "first label", "1": "second label"}',
        )
    labels = tuple(str(names[str(number)]) for number in range(len(names)))
    if None in names.values() or len(set(labels)) < len(labels):
        raise ConfigError(
            f"id2label has duplicate or missing labels: {', '.join(labels)}",
            fix="give each label a unique name",
        )
    return labels
