"""The file preprocessor_config.json of transformers: how images are resized and normalized.

Processors differ in what they do where the file says nothing. They resize an image to its shorter
side and keep the center (`CLIPImageProcessor`), or to exactly height × width (`ViTImageProcessor`,
`SiglipImageProcessor`, and the first one with such a size). Those that pad are our own.
"""

import re
from collections.abc import Mapping
from typing import Any

from cloze.config import check_value
from cloze.errors import ConfigError
from cloze.interop.layout import PREPROCESSOR_FILE
from cloze.models.configs.clip import RESAMPLINGS, ClipConfig

_RESIZE = "cloze_resize"  # only in our own files: transformers cannot pad with white
_HALF = (0.5, 0.5, 0.5)
_SQUARE = {"height": 224, "width": 224}
_VIT = {"do_center_crop": False, "size": _SQUARE, "image_mean": _HALF, "image_std": _HALF}
_CLIP: dict[str, Any] = {"do_center_crop": True, "size": {"shortest_edge": 224}, "resample": 3}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "ViT": {**_VIT, "resample": 2},
    "Siglip": {**_VIT, "resample": 3},
}


def write_image_settings(config: ClipConfig) -> dict[str, Any]:
    """The settings of transformers' image processor; it distorts images where our models pad."""
    size = {"height": config.image_size, "width": config.image_size}
    is_cropped = config.resize == "crop"
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": config.image_size} if is_cropped else size,
        "resample": RESAMPLINGS.index(config.resampling),
        "do_center_crop": is_cropped,
        "crop_size": size,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(config.image_mean),
        "image_std": list(config.image_std),
        _RESIZE: config.resize,
    }


def read_image_settings(settings: object, *, is_own: bool = False) -> dict[str, Any]:
    """The fields of a configuration that say how images are resized and normalized.

    Args:
        settings: what is in the file; None: there is none, as for some published models.
        is_own: cloze has written the folder. Its earlier versions padded where they did not crop.
    """
    if settings is None:
        return {"resize": "crop"}
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{PREPROCESSOR_FILE} is not an object", fix="download the file again")
    known = {**_find_defaults(settings), **{k: v for k, v in settings.items() if v is not None}}
    _check_scale(known)
    found: dict[str, Any] = {
        "resize": _read_resize(known, is_own=is_own),
        "resampling": _read_resampling(known["resample"]),
    }
    if known.get("do_normalize", True) is False:
        return {**found, "image_mean": (0.0,) * 3, "image_std": (1.0,) * 3}
    for name in ("image_mean", "image_std"):
        if name in known:
            check_value(f"{PREPROCESSOR_FILE}: {name}", tuple[float, ...], known[name])
            found[name] = tuple(map(float, known[name]))
    return found


def _find_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the processor that the file names; early files call it a feature extractor."""
    name = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    kind = re.sub(r"(ImageProcessor|FeatureExtractor).*", "", str(name))
    return _DEFAULTS.get(kind, _CLIP)


def _check_scale(settings: Mapping[str, Any]) -> None:
    factor = settings.get("rescale_factor", 1 / 255)
    check_value(f"{PREPROCESSOR_FILE}: rescale_factor", float, factor)
    if abs(factor * 255 - 1) > 1e-3:  # noqa: PLR2004
        raise ConfigError(
            f"{PREPROCESSOR_FILE} sets rescale_factor to {factor!r}", fix="use a model with 1/255"
        )
    if settings.get("do_rescale", True) is False:
        raise ConfigError(
            f"{PREPROCESSOR_FILE} sets do_rescale to false",
            fix="use a model with pixels from 0 to 1",
        )


def _read_resize(settings: Mapping[str, Any], *, is_own: bool) -> object:
    """How an image becomes a square."""
    own = settings.get(_RESIZE)
    if own is not None:
        return own
    is_cropped = settings["do_center_crop"] is not False
    edges = _read_edges(settings["size"], is_square=not is_cropped)
    if len(edges) == 1:
        if is_cropped:
            _check_crop(edges[0], settings.get("crop_size"))
            return "crop"
        raise ConfigError(
            f"{PREPROCESSOR_FILE}: size is {settings['size']!r}, but images are not cropped",
            fix="use a model with do_center_crop, or with a size of height and width",
        )
    if edges[0] != edges[1]:
        raise ConfigError(
            f"{PREPROCESSOR_FILE}: size is {settings['size']!r}", fix="use a model of square images"
        )
    return "pad" if is_own else "squash"


def _read_edges(size: object, *, is_square: bool) -> tuple[int, ...]:
    """The length of the shorter side, or height and width; a number means one of both."""
    if isinstance(size, Mapping):
        names = ("shortest_edge",) if "shortest_edge" in size else ("height", "width")
        found = [size.get(name) for name in names]
    else:
        found = [size] * (2 if is_square else 1)
    for one in found:
        check_value(f"{PREPROCESSOR_FILE}: size", int, one)
    return tuple(found)  # type: ignore[arg-type]  # checked


def _check_crop(shortest: int, crop: object) -> None:
    """Raise if the center that is kept is not that of the shorter side."""
    if crop is None:
        return
    edges = set(_read_edges(crop, is_square=True))
    if edges != {shortest}:
        raise ConfigError(
            f"{PREPROCESSOR_FILE}: the shorter side becomes {shortest} pixels, but crop_size is "
            f"{crop!r}",
            fix="use a model with equal sizes",
        )


def _read_resampling(number: object) -> str:
    """The name of Pillow's filter."""
    check_value(f"{PREPROCESSOR_FILE}: resample", int, number)
    assert isinstance(number, int)
    if not 0 <= number < len(RESAMPLINGS):
        raise ConfigError(
            f"{PREPROCESSOR_FILE} sets resample to {number}",
            fix=f"use a number from 0 to {len(RESAMPLINGS) - 1}, such as 3 (bicubic)",
        )
    return RESAMPLINGS[number]
