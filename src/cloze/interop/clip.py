"""The layouts of CLIP: those of transformers where it has the model, and our own.

    clip                       ViT and CLIP's own text encoder: `CLIPModel`
    vision-text-dual-encoder   ViT and a BERT or RoBERTa: `VisionTextDualEncoderModel`
    cloze-clip                 any other text encoder, or a ResNet: our own layout

How images are scaled and normalized is in preprocessor_config.json, for transformers, too.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloze.errors import ClozeError, ConfigError, FolderError
from cloze.interop.encoders import BERT
from cloze.interop.gpt import GPT2
from cloze.interop.huggingface import ADMINISTRATIVE, HuggingFaceLayout
from cloze.interop.image_processor import read_image_settings, write_image_settings
from cloze.interop.layout import PREPROCESSOR_FILE, Description, Entry, Layout, Rule, part_of
from cloze.interop.own import OwnLayout
from cloze.interop.roberta import ROBERTA, XLM_ROBERTA
from cloze.models.configs.base import ModelConfig
from cloze.models.configs.clip import TEXT_ENCODER, ClipConfig
from cloze.models.configs.nested import NestedConfig

HUGGING_FACE, DUAL_ENCODER, OWN = "clip", "vision-text-dual-encoder", "cloze-clip"
PROCESSOR_FILE = "processor_config.json"  # newer folders have the preprocessor's settings in it
_OWN_KEY = "max_text_length"  # a setting that only folders of cloze have
_IMAGES = "images"  # under which `add_files` adds the settings of images
_TEXT_MODEL, _VISION_MODEL = "clip_text_model", "clip_vision_model"
_PUBLISHED_EOS_ID, _PUBLISHED_VOCAB_SIZE = 49407, 49408
_BLOCK: dict[str, Entry] = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": "self_attn.out_proj",
    "attention_norm": "layer_norm1",
    "ffn.up": "mlp.fc1",
    "ffn.down": "mlp.fc2",
    "ffn_norm": "layer_norm2",
}
_SUFFIXES = {  # the class that transformers would have for a head, which it lacks
    "lm": "LMHeadModel",
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}


def _read_text_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Their settings, with the defaults that transformers does not write."""
    found = {
        "vocab_size": _PUBLISHED_VOCAB_SIZE,
        "eos_token_id": _PUBLISHED_EOS_ID,
        "pad_token_id": 1,
        **values,
    }
    if isinstance(found["eos_token_id"], list):
        raise ConfigError(
            f"config.json sets eos_token_id to {found['eos_token_id']!r}", fix="use one token id"
        )
    return found


CLIP_TEXT = HuggingFaceLayout(
    family=TEXT_ENCODER,
    model_type=_TEXT_MODEL,
    prefix="text_model.",
    settings={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "activation": "hidden_act",
        "dropout": "dropout",
        "embedding_dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "classifier_dropout",
        "norm_eps": "layer_norm_eps",
        "init_std": "initializer_range",
        "pad_id": "pad_token_id",
        "end_of_text_id": "eos_token_id",
        "tie_embeddings": "tie_word_embeddings",
    },
    architectures={
        "CLIPTextModel": (),
        **{f"CLIPText{suffix}": (head,) for head, suffix in _SUFFIXES.items()},
    },
    weights={
        "embeddings.word": "text_model.embeddings.token_embedding",
        "embeddings.position": "text_model.embeddings.position_embedding",
        **_BLOCK,
        "norm": "text_model.final_layer_norm",
        **{ours: entry for ours, entry in GPT2.weights.items() if ours.startswith("task_heads.")},
    },
    token_types=False,
    block="text_model.encoder.layers.{n}.",
    harmless=frozenset({"text_model.embeddings.position_ids", "lm_head.weight"}),
    head_weights={"qa_outputs.weight": "span"},
    ignored_settings=frozenset({"projection_dim", "initializer_factor", "logit_scale_init_value"}),
    special_ids={"bos_token_id": "cls"},
    normalize_settings=_read_text_settings,
)

_VISION = HuggingFaceLayout(
    family="clip",
    prefix="vision_model.",
    settings={
        "image_size": "image_size",
        "patch_size": "patch_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "activation": "hidden_act",
        "attention_dropout": "attention_dropout",
        "norm_eps": "layer_norm_eps",
        "init_std": "initializer_range",
    },
    architectures={},
    weights={
        "class_token": "vision_model.embeddings.class_embedding",
        "patches": "vision_model.embeddings.patch_embedding",
        "position": "vision_model.embeddings.position_embedding",
        "norm_in": "vision_model.pre_layrnorm",
        **_BLOCK,
        "norm": "vision_model.post_layernorm",
    },
    block="vision_model.encoder.layers.{n}.",
)
_VISION_DEFAULTS = {  # of transformers, which need not be in a file
    "image_size": 224,
    "patch_size": 32,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "quick_gelu",
}
_OTHER_WEIGHTS = {
    "text_projection.weight": "text_projection.weight",
    "image_projection.weight": "visual_projection.weight",
    "logit_scale": "logit_scale",
}
_TEXT_LAYOUTS = {"bert": BERT, "roberta": ROBERTA, "xlm-roberta": XLM_ROBERTA}
_THEIR_PARTS = {
    "text_model": "text_encoder",
    "vision_model": "vision_encoder",
    "visual_projection": "image_projection",
}
_KNOWN = {
    "text_config",
    "vision_config",
    "projection_dim",
    "logit_scale_init_value",
    "max_text_length",
    _IMAGES,
}
_IGNORED = {"initializer_factor", "text_config_dict", "vision_config_dict", *ADMINISTRATIVE}


def find_layout(config: ClipConfig) -> str:
    """The layout of a model: the `model_type` of its folder."""
    assert config.text is not None
    family = config.text.config.family
    if config.vision == "vit" and family == TEXT_ENCODER:
        return HUGGING_FACE
    if config.vision == "vit" and family in _TEXT_LAYOUTS and config.text_pooling == "pooler":
        return DUAL_ENCODER
    return OWN


@dataclass(frozen=True, kw_only=True)
class ClipLayout(OwnLayout):
    """The layouts of CLIP; which one, `model_type` says, and for a new folder the configuration."""

    harmless: frozenset[str] = frozenset(
        f"{model}.embeddings.position_ids" for model in ("text_model", "vision_model")
    )

    def add_files(self, values: Mapping[str, Any], read: Callable[[str], Any]) -> Mapping[str, Any]:
        """Add the settings of images, which transformers has in a file of their own."""
        if values.get("model_type") == OWN:
            return values
        found = read(PREPROCESSOR_FILE)
        if found is None and isinstance(both := read(PROCESSOR_FILE), Mapping):
            found = both.get("image_processor")
        return {**values, _IMAGES: found}

    def read_config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Description:
        """Translate config.json; settings of images are optional."""
        if values.get("model_type") == OWN:
            return super().read_config(values, stored)
        vision = _read_table(values, "vision_config")
        text = _read_text(values)
        is_dual = values.get("model_type") == DUAL_ENCODER
        try:
            config = ClipConfig(
                **_read_vision(vision, is_dual=is_dual),
                **read_image_settings(values.get(_IMAGES), is_own=_OWN_KEY in values),
                vocab_size=text.config.vocab_size,
                text=NestedConfig(text.config),
                text_pooling="pooler" if is_dual else "eos",
                projection_size=values.get("projection_dim", 512),
                init_logit_scale=values.get("logit_scale_init_value", 2.6592),
                max_text_length=values.get(_OWN_KEY, _read_max_length(text.config)),
            )
        except ClozeError as error:
            raise FolderError(f"config.json: {error.problem}", fix=error.fix) from None
        ignored = [str(key) for key in values if key not in _KNOWN | _IGNORED]
        return Description(config=config, ignored=tuple(sorted(ignored)))

    def write_config(
        self,
        config: ModelConfig,
        task_heads: Iterable[str] = (),
        *,
        dtype: str = "float32",
        special_ids: Mapping[str, int | None] | None = None,
    ) -> dict[str, Any]:
        """In the layout of transformers if it has such a model."""
        assert isinstance(config, ClipConfig)
        kind = find_layout(config)
        if kind == OWN:
            return super().write_config(config, task_heads) | {"model_type": OWN}
        assert config.text is not None
        vision = {theirs: getattr(config, ours) for ours, theirs in _VISION.settings.items()}
        text = _get_text_layout(config).write_config(
            config.text.config, dtype=dtype, special_ids=special_ids
        )
        is_dual = kind == DUAL_ENCODER
        return {
            "architectures": ["VisionTextDualEncoderModel" if is_dual else "CLIPModel"],
            "model_type": kind,
            "projection_dim": config.projection_size,
            "logit_scale_init_value": config.init_logit_scale,
            _OWN_KEY: config.max_text_length,
            "text_config": text | {"projection_dim": config.projection_size},
            "vision_config": {
                "model_type": _VISION_MODEL,
                **vision,
                "num_channels": 3,
                "projection_dim": config.projection_size,
            },
            "dtype": dtype,
        }

    def write_files(self, config: ModelConfig) -> Mapping[str, Any]:
        """The settings of transformers' image processor."""
        assert isinstance(config, ClipConfig)
        if find_layout(config) == OWN:
            return {}
        return {PREPROCESSOR_FILE: write_image_settings(config)}

    def map_weights(self, config: ModelConfig, names: Iterable[str]) -> dict[str, Rule]:
        """The rule of each weight; in our own layout it has its own name."""
        assert isinstance(config, ClipConfig)
        if find_layout(config) == OWN:
            return super().map_weights(config, names)
        assert config.text is not None
        layout = _get_text_layout(config)
        found: dict[str, Rule] = {}
        for name in names:
            part, _, inner = name.partition(".")
            if part == "vision_encoder":
                found[name] = _VISION.map_weights(config, [inner])[inner]
            elif part == "text_encoder":
                rule = layout.map_weights(config.text.config, [inner])[inner]
                stored = (f"text_model.{one.removeprefix(layout.prefix)}" for one in rule.names)
                found[name] = replace(rule, names=tuple(stored))
            else:
                found[name] = Rule((_OTHER_WEIGHTS[name],))
        return found

    def assign_parts(self, description: Description, stored: Iterable[str]) -> dict[str, str]:
        """The two encoders, the projections and the scale, whatever their names."""
        found = super().assign_parts(description, set(stored) - self.harmless)
        return {name: _THEIR_PARTS.get(part_of(name), part) for name, part in found.items()}


def _get_text_layout(config: ClipConfig) -> HuggingFaceLayout:
    assert config.text is not None
    return _TEXT_LAYOUTS.get(config.text.config.family, CLIP_TEXT)


def _read_table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of one encoder; early folders have them twice, and the second ones count."""
    found = values.get(f"{name}_dict") or values.get(name) or {}
    if not isinstance(found, Mapping):
        raise FolderError(f"config.json: {name} is not an object", fix="download the file again")
    return dict(found)


def _read_text(values: Mapping[str, Any]) -> Description:
    table = _read_table(values, "text_config")
    layouts: Mapping[str, Layout] = {_TEXT_MODEL: CLIP_TEXT}
    kind, default = table.get("model_type"), _TEXT_MODEL
    if values.get("model_type") == DUAL_ENCODER:
        layouts, default = _TEXT_LAYOUTS, "bert"
    layout = layouts.get(str(kind or default))
    if layout is None:
        raise FolderError(
            f"config.json: text_config.model_type is {str(kind)[:80]!r}",
            fix=f"use a model whose text encoder is one of {', '.join(layouts)}",
        )
    try:
        return layout.read_config(table, ())
    except ConfigError as error:
        problem = error.problem.removeprefix("config.json: ")
        raise FolderError(f"config.json: text_config.{problem}", fix=error.fix) from None


def _read_max_length(config: Any) -> int:  # noqa: ANN401 (of a text encoder)
    return min(max(2, config.max_positions), 512)


def _read_vision(table: Mapping[str, Any], *, is_dual: bool) -> dict[str, Any]:
    kind = table.get("model_type", None if is_dual else _VISION_MODEL)
    if kind != _VISION_MODEL:
        raise ConfigError(
            f"vision_config.model_type is {str(kind)[:80]!r}",
            fix=f"use a model whose image encoder is {_VISION_MODEL}",
        )
    if table.get("num_channels", 3) != 3:  # noqa: PLR2004
        raise ConfigError(
            f"vision_config.num_channels is {table['num_channels']!r}", fix="use 3 channels"
        )
    known = {**_VISION_DEFAULTS, **table}
    found = {ours: known[theirs] for ours, theirs in _VISION.settings.items() if theirs in known}
    return {name: _read_square(name, value) for name, value in found.items()}


def _read_square(name: str, value: object) -> object:
    """A size, which may be written as height and width."""
    if name not in ("image_size", "patch_size") or isinstance(value, int):
        return value
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:  # noqa: PLR2004
        return value[0]
    raise ConfigError(f"vision_config.{name} is {value!r}", fix="use a square size")


CLIP = ClipLayout(family="clip", required=("vocab_size", "image_size", "text"))
