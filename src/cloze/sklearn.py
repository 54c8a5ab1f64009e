"""scikit-learn estimators: embeddings and fine-tuning in pipelines and grid searches.

    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from cloze.sklearn import Embedder

    make_pipeline(Embedder("runs/bert", pooling="cls"), LogisticRegression()).fit(texts, labels)

As scikit-learn requires, constructors only store their arguments; `fit` checks them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model, check_capability
from cloze.config import parse_settings
from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import ConfigError, InputError, MissingExtraError
from cloze.files import PathLike
from cloze.make.finetune.encoder import finetune_encoder
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.models.configs.encoder import MULTI_LABEL
from cloze.tasks.classify import Classification, predict
from cloze.tasks.embed import Vectors, embed
from cloze.tasks.inputs import warn_truncated

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_consistent_length, check_is_fitted
except ImportError as error:
    raise MissingExtraError("cloze.sklearn", extra="sklearn") from error

Texts = Iterable[str]  # a list, an array or a column of a table
TextsOrPairs = Iterable[str | tuple[str, str]]  # or a table with two columns
PAIR = 2


class _TextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Tells scikit-learn that the inputs are texts."""

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _TextEstimator):  # type: ignore[misc]
    """Transforms texts to embeddings, like `cloze.embed`.

    A pickle, such as one for a worker process, contains no weights if `model` is a path: the model
    is loaded again. A loaded `Model` is pickled with its weights.

    Args:
        model: a folder, "org/name", or a loaded `Model`.
        layers: embeddings, second-to-last, last, sum-last-4, concat-last-4, sum-all, or layer
            numbers.
        pooling: cls, mean or max. Default: the setting of the folder, else mean.
        normalize: whether to L2-normalize the vectors. Default: the setting of the folder, else no.
        truncation: for texts that are too long: head, tail, head+tail, window or error. Default:
            head, with a warning.
        overlap: tokens that two windows share. Default: a quarter of the window.
        batch_tokens: maximum number of tokens in a batch.
        device: device that the model is loaded to. Default: a GPU if there is one.
    """

    def __init__(
        self,
        model: PathLike | Model,
        *,
        layers: str | Sequence[int] = "last",
        pooling: str | None = None,
        normalize: bool | None = None,
        truncation: str | None = None,
        overlap: int | None = None,
        batch_tokens: int | None = None,
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
        """Load the model and check the arguments; nothing is learned."""
        _check_texts(X)
        if self.pooling == "none":
            raise ConfigError(
                "an Embedder needs one vector per text, but pooling is none",
                fix="use cls, mean or max; for token vectors call cloze.embed",
            )
        self.model_ = _open_model(self.model, self.device)
        self._n_features_out = self._embed([""]).shape[1]  # this also checks all arguments
        return self

    def transform(self, X: Texts) -> Vectors:
        """The embeddings, one row per text."""
        check_is_fitted(self)
        return self._embed(_check_texts(X))

    def _embed(self, texts: list[str]) -> Vectors:
        if not hasattr(self, "model_"):  # after unpickling
            self.model_ = _open_model(self.model, self.device)
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


class _FineTuner(_TextEstimator):
    """Base of `Classifier` and `Regressor`: fine-tunes in a temporary folder."""

    def __init__(
        self,
        model: PathLike | Model,
        *,
        epochs: float = 3.0,
        lr: float = 5e-5,
        batch_size: int = 32,
        transfer: str = "full",
        max_length: int | None = None,
        truncation: str | None = None,
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

    def _finetune(
        self, examples: Sequence[TextExample], labels: Sequence[str | float | tuple[str, ...]]
    ) -> Model:
        train = [replace(one, label=label) for one, label in zip(examples, labels, strict=True)]
        with TemporaryDirectory(prefix="cloze-") as work:
            ended = finetune_encoder(self.model, train, Path(work) / "model", self._recipe())
            if ended.stopped:  # the temporary folder cannot be resumed
                raise KeyboardInterrupt(ended.stopped)
            return load(ended.folder, device=self.device, quiet=True)

    def _recipe(self) -> FinetuneRecipe:
        options = {
            "max_length": self.max_length,
            "truncation": self.truncation,
            "transfer": self.transfer,
            "seed": self._seed(),
            "device": self.device,
        }
        plain = {name: _to_python_number(value) for name, value in options.items()}
        defaults = {  # no options: an option without effect, as on features, is an error
            "optimizer.lr": self.lr,
            "run.epochs": self.epochs,
            "run.batch_size": self.batch_size,
            "data.hold_out": self.hold_out,
        }
        settings = {name: _to_python_number(value) for name, value in defaults.items()}
        settings |= parse_settings(self.settings)
        made = complete_finetuning(task="classify", options=plain, settings=settings)
        assert isinstance(made, FinetuneRecipe)
        return made

    def _seed(self) -> object:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return check_random_state(self.random_state).randint(1 << 31)
        return self.random_state

    def _predict(self, X: TextsOrPairs) -> list[Classification]:
        check_is_fitted(self)
        found = predict(self.model_, _make_examples(X))
        if self.truncation is None:
            warn_truncated([one.truncated_chars for one in found], self.model_.max_length)
        return found

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = _pack_model(state["model_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:
            self.model_ = _unpack_model(state["model_"], self.device)


class Classifier(ClassifierMixin, _FineTuner):  # type: ignore[misc]
    """Classifies texts or pairs of texts with a fine-tuned model.

    `model_` is the fine-tuned `Model`; `model_.save(folder)` writes a model folder. A pickle
    contains the files of such a folder (safetensors and JSON).

    Args:
        model: model to fine-tune: a folder, "org/name", or a loaded `Model`.
        epochs: number of passes over the training data.
        lr: peak learning rate.
        batch_size: number of examples in a step.
        transfer: what is trained: full, last-N (layers), head, or features (logistic or ridge
            regression on embeddings of the frozen model).
        max_length: maximum number of tokens in a text. Default: the maximum of the model.
        truncation: for texts that are too long: head, tail, head+tail, window or error. Default:
            head, with a warning from `predict`.
        hold_out: fraction of the examples to evaluate on after each epoch; the best model is kept.
            With 0 the last model is kept.
        settings: other settings of the recipe, such as "loss.class_weights=balanced".
        random_state: seed, as `cloze finetune --seed`.
        device: device for training and prediction. Default: a GPU if there is one.
    """

    def fit(self, X: TextsOrPairs, y: ArrayLike) -> Self:
        """Fine-tune the model; labels may be of any type that can be sorted.

        A matrix of 0 and 1 has a column for each label, and a text may have several; of a data
        frame `classes_` are the column names.
        """
        examples = _make_examples(X)
        if _is_matrix(y) and type_of_target(y) == "multilabel-indicator":
            return self._fit_several(examples, y)
        labels = _check_targets(y, examples)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        names = _label_names(classes)
        if len(names) == 1:
            raise InputError(
                f"y contains only one class: {names[0]!r}",
                fix="add examples of at least one other class",
            )
        self.model_ = self._finetune(examples, [names[number] for number in numbers])
        self.classes_ = classes
        return self

    def _fit_several(self, examples: Sequence[TextExample], y: Any) -> Self:  # noqa: ANN401
        matrix = np.asarray(y.toarray() if hasattr(y, "toarray") else y).astype(bool)
        check_consistent_length(examples, matrix)
        columns = getattr(y, "columns", range(matrix.shape[1]))
        names = [str(name) for name in columns]
        rows = [tuple(compress(names, row)) for row in matrix]
        self.model_ = self._finetune(examples, rows)
        self.classes_ = np.array(list(columns))
        return self

    def predict(self, X: TextsOrPairs) -> NDArray[Any]:
        """The most probable class of each text; with several labels a matrix of 0 and 1."""
        if self._has_several():
            found = self._predict(X)
            names = _label_names(self.classes_)
            rows = [[int(name in (one.labels or ())) for name in names] for one in found]
            return np.array(rows).reshape(len(found), len(names))
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def _has_several(self) -> bool:
        check_is_fitted(self)
        return bool(self.model_.problem_type == MULTI_LABEL)

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def predict_proba(self, X: TextsOrPairs) -> Vectors:
        """The probabilities of the classes, in the order of `classes_`."""
        found = self._predict(X)
        names = _label_names(self.classes_)
        # a label that no text has is not a label of the model
        rows = [[one.scores.get(name, 0.0) for name in names] for one in found]
        return np.array(rows, np.float32).reshape(len(found), len(names))


class Regressor(RegressorMixin, _FineTuner):  # type: ignore[misc]
    """Predicts a number for texts or pairs of texts. Arguments as of `Classifier`."""

    def fit(self, X: TextsOrPairs, y: ArrayLike) -> Self:
        """Fine-tune the model."""
        examples = _make_examples(X)
        self.model_ = self._finetune(examples, _check_targets(y, examples).astype(float).tolist())
        return self

    def predict(self, X: TextsOrPairs) -> NDArray[np.float64]:
        """The predicted number of each text."""
        return np.array([one.score for one in self._predict(X)])


def _check_texts(X: Texts) -> list[str]:
    texts = _list_rows(X)
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise _bad_text_error(number, text, "a string")
    return [str(text) for text in texts]  # converts numpy.str_


def _make_examples(X: TextsOrPairs) -> list[TextExample]:
    made: list[TextExample] = []
    for number, row in enumerate(_list_rows(X, pairs=True), 1):
        match row:
            case str():
                text, pair = row, None
            case [str(), str()]:
                text, pair = row
            case _:
                raise _bad_text_error(number, row, "a string or a pair of strings")
        made.append(
            TextExample(text=str(text), pair=pair and str(pair), origin=Origin(line=number))
        )
    return made


def _list_rows(X: Iterable[object], *, pairs: bool = False) -> list[object]:
    """The items of a list or column; for a table of pairs, each row as a list."""
    if isinstance(X, str):
        raise InputError("X is one string, not a list of texts", fix="put it in a list: [text]")
    shape = getattr(X, "shape", (0,))
    if len(shape) == 1:
        return list(X)
    if pairs and shape[1:] == (PAIR,):
        return np.asarray(X).tolist()
    raise InputError(
        f"X has the shape {tuple(shape)}, but texts must be one column",
        fix='select one column: frame["text"], or "text" in a ColumnTransformer',
    )


def _bad_text_error(number: int, row: object, wanted: str) -> InputError:
    shown = repr(row)
    short = shown if len(shown) <= 40 else shown[:39] + "…"  # noqa: PLR2004
    return InputError(
        f"text {number} is {short} ({type(row).__name__}), not {wanted}",
        fix="convert it to a string ('' for a missing text), or remove the row",
    )


def _check_targets(y: ArrayLike, examples: Sequence[TextExample]) -> NDArray[Any]:
    if y is None:
        raise InputError("y is None, but training needs labels", fix="pass the labels as y")
    for number, label in enumerate(np.asarray(y, object).ravel(), 1):
        # numpy would convert a NaN among strings to the string "nan", a class of its own
        if label is None or (isinstance(label, float | np.floating) and np.isnan(label)):
            raise InputError(f"label {number} is {label}", fix="add the label, or remove the row")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    check_consistent_length(examples, labels)
    return labels


def _is_matrix(y: Any) -> bool:  # noqa: ANN401
    """Whether targets have several columns."""
    shape = getattr(y, "shape", None)
    if shape is not None:
        return len(shape) == 2 and shape[1] > 1  # noqa: PLR2004
    return isinstance(y, list | tuple) and bool(y) and isinstance(y[0], list | tuple | np.ndarray)


def _label_names(classes: NDArray[Any]) -> list[str]:
    """The classes as strings, as in config.json."""
    return [str(label) for label in classes.tolist()]


def _open_model(model: PathLike | Model, device: str | None) -> Model:
    if not isinstance(model, Model):
        model = load(model, device=device, quiet=True)
    check_capability(model, "embed")
    return model


def _pack_model(model: Model) -> dict[str, bytes]:
    with TemporaryDirectory(prefix="cloze-") as work:
        folder = model.save(Path(work) / "model")
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _unpack_model(files: dict[str, bytes], device: str | None) -> Model:
    with TemporaryDirectory(prefix="cloze-") as work:
        for name, content in files.items():
            path = Path(work) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return load(work, device=device, quiet=True)


def _to_python_number(value: object) -> object:
    """A Python number for one of numpy, which grid searches pass."""
    return value.item() if isinstance(value, np.generic) else value
