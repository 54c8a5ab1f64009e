"""The models of a server by name; each is loaded when it is first needed."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cloze.checkpoint.contents import read_folder
from cloze.checkpoint.load import find_file_family, load
from cloze.checkpoint.model import Model
from cloze.decode.language import language_model
from cloze.errors import ConfigError
from cloze.models.capabilities import Contents
from cloze.serve.failures import refuse
from cloze.tasks.explain.views import VIEWS, find_obstacle

Load = Callable[[str], Model]


@dataclass(eq=False, kw_only=True)
class ServedModel:
    """A model of the server, which may not be loaded yet."""

    name: str
    source: str
    family: str
    capabilities: dict[str, str]
    description: str  # of the family
    view_obstacles: dict[str, str]  # why a view does not apply, empty if it does
    mask_token: str | None
    reads_images: bool
    created: int  # seconds since 1970, when its folder was written
    model: Model | None = None
    loading: "asyncio.Future[Model] | None" = None
    adapters: dict[str, Any] = field(default_factory=dict)
    indexes: list[str] = field(default_factory=list)  # names of those made with it

    @property
    def language_model(self) -> Any:  # noqa: ANN401 - a LanguageModel
        """One adapter for all requests, because it may give ids to words that it has not seen."""
        if "language" not in self.adapters:
            self.adapters["language"] = language_model(self.model)  # type: ignore[arg-type]
        return self.adapters["language"]


def parse_sources(sources: Iterable[str]) -> dict[str, str]:
    """Sources by name, from arguments PATH or NAME=PATH; the name of a folder is its last part."""
    found: dict[str, str] = {}
    for given in sources:
        name, separator, source = given.partition("=")
        if not separator or os.sep in name:
            name, source = Path(given).name or given, given
        if name in found:
            raise ConfigError(
                f"two models have the name {name}: {found[name]} and {source}",
                fix=f"name one of them: other={source}",
            )
        found[name] = source
    if not found:
        raise ConfigError("there are no models", fix="name a model, such as cloze-en")
    return found


def describe_model(name: str, source: str) -> ServedModel:
    """A model that is not loaded; raises if the folder is no model."""
    family = find_file_family(source)
    contents: Any
    if family is None:
        contents = read_folder(source)
        path = contents.folder
    else:
        contents = SimpleNamespace(
            family=family,
            capabilities=dict(family.capabilities(Contents())),
            config=None,
            task=None,
            tokenizer=None,
        )
        path = Path(source)
    return ServedModel(
        name=name,
        source=source,
        family=contents.family.name,
        description=contents.family.description,
        capabilities=contents.capabilities,
        view_obstacles={view: find_obstacle(contents, view) for view in VIEWS},
        mask_token=getattr(contents.tokenizer, "mask_token", None),
        reads_images=contents.family.kind == "dual_encoder",
        created=int(path.stat().st_mtime) if path.exists() else 0,
    )


class ModelStore:
    """Loads models in a thread of their own, and finds them by name or function."""

    def __init__(
        self,
        sources: dict[str, str],
        *,
        device: str | None = None,
        dtype: str = "float32",
        load_model: Load | None = None,
        shared_folder: Path | None = None,
    ) -> None:
        self.models = {name: describe_model(name, source) for name, source in sources.items()}
        self._sources = dict(sources)
        self.list_others: Callable[[], Mapping[str, str]] = dict
        """Sources of models that come and go by name, such as those of fine-tuning jobs."""
        self._others: dict[str, str] = {}
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="cloze-load")

        def load_folder(source: str) -> Model:
            model = load(source, device=device, dtype=dtype, quiet=True)
            if shared_folder is None:
                return model
            from cloze.serve.shared_weights import share_weights

            return share_weights(model, shared_folder, source)

        self._load: Load = load_model or load_folder

    def add(self, name: str, source: str) -> None:
        """Add a model that stays."""
        self.models[name] = describe_model(name, source)
        self._sources[name] = source

    def refresh(self) -> None:
        """Add models that are new, and forget those that are gone."""
        found = self.list_others()
        for name in self._others.keys() - found.keys():
            del self.models[name]
        for name in found.keys() - self.models.keys():
            self.models[name] = describe_model(name, found[name])
        self._others = {name: found[name] for name in found if name not in self._sources}

    def find(self, name: str | None, function: str, *, reads_images: bool = False) -> ServedModel:
        """The model of this name, or the first one that supports a function, of images or not."""
        if name is not None:
            is_gone = name in self._others and not Path(self._others[name]).exists()
            if is_gone or name not in self.models:
                self.refresh()
            if name in self.models:
                return self.models[name]
            raise refuse(
                404,
                "model_not_found",
                f"there is no model {name!r}",
                fix=f"use one of: {', '.join(self.models)}",
            )
        for one in self.models.values():
            if function in one.capabilities and one.reads_images == reads_images:
                return one
        for one in self.models.values():  # a model of images also embeds texts
            if function in one.capabilities and not reads_images:
                return one
        raise refuse(
            400,
            "unsupported_function",
            f"no model of this server supports `{function}`{' of images' * reads_images}",
            fix="start the server with a model that does",
        )

    async def get(self, served: ServedModel) -> Model:
        """The loaded model; several requests wait for one loading."""
        if served.model is not None:
            return served.model
        if served.loading is None:
            loop = asyncio.get_running_loop()
            served.loading = loop.create_task(self._load_model(served))
            served.loading.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(served.loading)

    async def _load_model(self, served: ServedModel) -> Model:
        loop = asyncio.get_running_loop()
        try:
            model = await loop.run_in_executor(self._loader, self._load, served.source)
            served.model = model
        finally:
            served.loading = None
        return model

    @property
    def is_loading(self) -> bool:
        return any(one.loading is not None for one in self.models.values())

    def close(self) -> None:
        """Stop the thread that loads models."""
        self._loader.shutdown(wait=False, cancel_futures=True)
