"""scikit-learn estimators: vectors of texts, and fine-tuning, inside its pipelines and searches.

    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from cloze.sklearn import Embedder

    make_pipeline(Embedder("runs/bert", pooling="cls"), LogisticRegression()).fit(texts, labels)

By scikit-learn's rules a constructor only keeps what it is given; everything is checked in `fit`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.config import parse_settings
from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import ConfigError, InputError, MissingExtraError
from cloze.files import PathLike
from cloze.make.finetune.encoder import finetune_encoder
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.tasks.classify import Classification, predict
from cloze.tasks.embed import Vectors, embed
from cloze.tasks.inference import BATCH_TOKENS

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted
except ImportError as error:
    raise MissingExtraError("cloze.sklearn", extra="sklearn") from error

Texts = Iterable[str]  # a list, an array, a column of a table
TextsOrPairs = Iterable[str | tuple[str, str]]  # or a table of two columns
PAIR = 2


class _OfTexts(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What scikit-learn must know about estimators of texts."""

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _OfTexts):  # type: ignore[misc]
    """Texts to vectors, as `cloze.embed` makes them.

    A pickle of it, such as a worker process gets, holds no weights: the model is opened again from
    its folder. A loaded `Model` is used as it is, and does travel.

    Args:
        model: a folder, "org/name", or a loaded `Model`.
        layers: embeddings, second-to-last, last, sum-last-4, concat-last-4, sum-all, or numbers.
        pooling: cls, mean or max; unsaid, the folder's own, else mean.
        normalize: to length one; unsaid, as the folder says.
        truncation: for texts that are too long: head, tail, head+tail or window; None: an error.
        overlap: tokens that two windows share; None: a quarter of the window.
        batch_tokens: computed at once.
        device: for a model that is opened here; None is the GPU where there is one.
    """

    def __init__(
        self,
        model: PathLike | Model,
        *,
        layers: str | Sequence[int] = "last",
        pooling: str | None = None,
        normalize: bool | None = None,
        truncation: str | None = "head",
        overlap: int | None = None,
        batch_tokens: int = BATCH_TOKENS,
        device: str | None = None,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.normalize = normalize
        self.truncation = truncation
        self.overlap = overlap
        self.batch_tokens = batch_tokens
        self.device = device

    def fit(self, X: Texts, y: object = None) -> Self:  # noqa: ARG002
        """Open the model and check the choices; there is nothing to learn."""
        _texts(X)
        if self.pooling == "none":
            raise ConfigError(
                "an Embedder makes one vector of a text, and pooling is none",
                fix="use cls, mean or max; cloze.embed gives the vectors of tokens",
            )
        self.model_ = _opened(self.model, self.device)
        self._n_features_out = self._embedded([""]).shape[1]  # of no words: checks every choice
        return self

    def transform(self, X: Texts) -> Vectors:
        """One vector for each text."""
        check_is_fitted(self)
        return self._embedded(_texts(X))

    def _embedded(self, texts: list[str]) -> Vectors:
        if not hasattr(self, "model_"):  # from a pickle
            self.model_ = _opened(self.model, self.device)
        return embed(
            self.model_,
            texts,
            layers=self.layers,
            pooling=self.pooling,
            normalize=self.normalize,
            truncation=self.truncation,
            overlap=self.overlap,
            batch_tokens=self.batch_tokens,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_features_out")

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # float32, always
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "model_"}


class _Tuner(_OfTexts):
    """What `Classifier` and `Regressor` share: `cloze finetune` in a folder that goes again."""

    def __init__(
        self,
        model: PathLike | Model,
        *,
        epochs: float = 3.0,
        lr: float = 5e-5,
        batch_size: int = 32,
        transfer: str = "full",
        max_length: int | None = None,
        truncation: str = "head",
        hold_out: float = 0.0,
        settings: Sequence[str] = (),
        random_state: int | np.random.RandomState | None = 0,
        device: str | None = None,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.transfer = transfer
        self.max_length = max_length
        self.truncation = truncation
        self.hold_out = hold_out
        self.settings = settings
        self.random_state = random_state
        self.device = device

    def _tuned(self, examples: Sequence[TextExample], labels: Sequence[str | float]) -> Model:
        train = [replace(one, label=label) for one, label in zip(examples, labels, strict=True)]
        with TemporaryDirectory(prefix="cloze-") as work:
            ended = finetune_encoder(self.model, train, Path(work) / "model", self._recipe())
            if ended.stopped:  # saved for a run that goes on; here nobody could
                raise KeyboardInterrupt(ended.stopped)
            return load(ended.folder, device=self.device, quiet=True)

    def _recipe(self) -> FinetuneRecipe:
        options = {
            "max_length": self.max_length,
            "truncation": self.truncation,
            "transfer": self.transfer,
            "lr": self.lr,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "seed": self._seed(),
            "device": self.device,
        }
        plain = {name: _plain(value) for name, value in options.items()}
        settings = {"data.hold_out": _plain(self.hold_out)} | parse_settings(self.settings)
        made = complete_finetuning(task="classify", options=plain, settings=settings)
        assert isinstance(made, FinetuneRecipe)
        return made

    def _seed(self) -> object:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return check_random_state(self.random_state).randint(1 << 31)
        return self.random_state

    def _predict(self, X: TextsOrPairs) -> list[Classification]:
        check_is_fitted(self)
        return predict(self.model_, _examples(X))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = _packed(state["model_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:
            self.model_ = _unpacked(state["model_"], self.device)


class Classifier(ClassifierMixin, _Tuner):  # type: ignore[misc]
    """Texts, or pairs of texts, to classes, by fine-tuning.

    `model_` is the fine-tuned `Model`, and `model_.save(folder)` keeps it for everyone. A pickle
    holds the files of that folder, safetensors and JSON.

    Args:
        model: to begin with: a folder, "org/name", or a loaded `Model`.
        epochs: how often all examples are learned from.
        lr: peak learning rate.
        batch_size: number of examples in a step.
        transfer: what learns: full, last-N, head, or features (a regression on frozen vectors).
        max_length: maximum number of tokens of a text (default: as many as the model takes).
        truncation: for longer texts: head, tail, head+tail or window.
        hold_out: a share of the examples to judge by after each epoch, so that the best is kept.
        settings: anything else of the recipe, such as "loss.class_weights=balanced".
        random_state: a number is the seed of the run, as of `cloze finetune --seed`.
        device: to learn and to predict on; None is the GPU where there is one.
    """

    def fit(self, X: TextsOrPairs, y: ArrayLike) -> Self:
        """Fine-tune the model; labels may be of any kind that sorts."""
        examples = _examples(X)
        labels = _targets(y, examples)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        names = _names(classes)
        if len(names) == 1:
            raise InputError(
                f"there is only one class in y: {names[0]!r}",
                fix="give examples of another: there is nothing to tell apart",
            )
        self.model_ = self._tuned(examples, [names[number] for number in numbers])
        self.classes_ = classes
        return self

    def predict(self, X: TextsOrPairs) -> NDArray[Any]:
        """The likeliest class of each."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: TextsOrPairs) -> Vectors:
        """The probability of every class, in the order of `classes_`."""
        found = self._predict(X)
        names = _names(self.classes_)
        rows = [[one.scores[name] for name in names] for one in found]
        return np.array(rows, np.float32).reshape(len(found), len(names))


class Regressor(RegressorMixin, _Tuner):  # type: ignore[misc]
    """Texts, or pairs of texts, to numbers, by fine-tuning. It takes what `Classifier` takes."""

    def fit(self, X: TextsOrPairs, y: ArrayLike) -> Self:
        """Fine-tune the model."""
        examples = _examples(X)
        self.model_ = self._tuned(examples, _targets(y, examples).astype(float).tolist())
        return self

    def predict(self, X: TextsOrPairs) -> NDArray[np.float64]:
        """The number of each."""
        return np.array([one.score for one in self._predict(X)])


def _texts(X: Texts) -> list[str]:
    texts = _rows(X)
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise _bad(number, text, "a string")
    return [str(text) for text in texts]  # numpy has strings of its own


def _examples(X: TextsOrPairs) -> list[TextExample]:
    made: list[TextExample] = []
    for number, row in enumerate(_rows(X, pairs=True), 1):
        match row:
            case str():
                text, pair = row, None
            case [str(), str()]:
                text, pair = row
            case _:
                raise _bad(number, row, "a string or a pair of strings")
        made.append(
            TextExample(text=str(text), pair=pair and str(pair), origin=Origin(line=number))
        )
    return made


def _rows(X: Iterable[object], *, pairs: bool = False) -> list[object]:
    """What a list or a column holds; of a table of pairs each row as a list."""
    if isinstance(X, str):
        raise InputError("X is one string, not a list of texts", fix="put it in a list: [text]")
    shape = getattr(X, "shape", (0,))
    if len(shape) == 1:
        return list(X)
    if pairs and shape[1:] == (PAIR,):
        return np.asarray(X).tolist()
    raise InputError(
        f"X has the shape {tuple(shape)}, and texts are one column",
        fix='give one column by its name alone: frame["text"], or "text" in a ColumnTransformer',
    )


def _bad(number: int, row: object, wanted: str) -> InputError:
    shown = repr(row)
    short = shown if len(shown) <= 40 else shown[:39] + "…"  # noqa: PLR2004
    return InputError(
        f"text {number} is {short} ({type(row).__name__}), not {wanted}",
        fix="mend it, or leave it out; what is missing may be ''",
    )


def _targets(y: ArrayLike, examples: Sequence[TextExample]) -> NDArray[Any]:
    if y is None:
        raise InputError("there is nothing to learn: y is None", fix="give the labels as y")
    for number, label in enumerate(np.asarray(y, object).ravel(), 1):
        # beside strings in a list numpy would make a NaN one of them, "nan", and it a class
        if label is None or (isinstance(label, float | np.floating) and np.isnan(label)):
            raise InputError(f"label {number} is {label}", fix="label the text, or leave it out")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    check_consistent_length(examples, labels)
    return labels


def _names(classes: NDArray[Any]) -> list[str]:
    """The classes as the model's folder spells them."""
    return [str(label) for label in classes.tolist()]


def _opened(model: PathLike | Model, device: str | None) -> Model:
    if isinstance(model, Model):
        return model
    return load(model, device=device, quiet=True, kind="encoder")


def _packed(model: Model) -> dict[str, bytes]:
    with TemporaryDirectory(prefix="cloze-") as work:
        folder = model.save(Path(work) / "model")
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _unpacked(files: dict[str, bytes], device: str | None) -> Model:
    with TemporaryDirectory(prefix="cloze-") as work:
        for name, content in files.items():
            path = Path(work) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return load(work, device=device, quiet=True)


def _plain(value: object) -> object:
    """A number of a grid that numpy made, as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
