"""scikit-learn's own checks, and the DistilBERT experiment by hand and by pipeline.

The checks feed tables of numbers, so that scikit-learn skips them all for estimators of texts. Here
the numbers are spelled in letters by a thin layer on top, as a user with such a table would do it,
and everything below that layer is ours.
"""

import numpy as np
import pytest
import torch
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted, validate_data

import cloze
from cloze.checkpoint.model import Model
from cloze.data.labelled.tables import read_text_examples
from cloze.models.configs.bert import BertConfig
from cloze.sklearn import Classifier, Embedder, Regressor
from helpers import PIECES, tiny_tokenizer

pytestmark = pytest.mark.parity

CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    intermediate_size=16,
    max_positions=32,
)
READER = {"transfer": "features", "settings": ["transfer.pooling=mean", "transfer.l2_penalty=0.01"]}
# the checks that ask nothing of the data
WITHOUT_DATA = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
)


def spelled(numbers):
    scaled = np.clip(numbers * 2 + 5, 0, 9).astype(int)
    return [" ".join("abcdefghij"[place] for place in row) for row in scaled]


class OnNumbers:
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        return tags

    def _spelled(self, X):
        check_is_fitted(self)
        return spelled(validate_data(self, X, reset=False))


class NumberEmbedder(OnNumbers, Embedder):
    def fit(self, X, y=None):
        return super().fit(spelled(validate_data(self, X)), y)

    def transform(self, X):
        return super().transform(self._spelled(X))


class NumberClassifier(OnNumbers, Classifier):
    def fit(self, X, y):
        X, y = validate_data(self, X, y, multi_output=True)
        return super().fit(spelled(X), y)

    def _predict(self, X):
        return super()._predict(self._spelled(X))


class NumberRegressor(OnNumbers, Regressor):
    def fit(self, X, y):
        X, y = validate_data(self, X, y, y_numeric=True)
        return super().fit(spelled(X), y)

    def predict(self, X):
        return super().predict(self._spelled(X))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = Model.from_config(CONFIG, tiny_tokenizer(), rng=torch.Generator().manual_seed(0))
    return str(model.save(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.mark.parametrize(
    ("kind", "choices", "every"),
    [
        (NumberEmbedder, {}, True),
        # the small net: it learns enough in no time
        pytest.param(NumberClassifier, READER, True, marks=pytest.mark.stress),
        (NumberClassifier, {"epochs": 1}, False),
        (NumberRegressor, {"epochs": 1}, False),
    ],
)
@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings and look for them themselves
def test_its_checks_pass(folder, kind, choices, every):
    results = estimator_checks.check_estimator(
        kind(folder, **choices), legacy=every, on_fail=None, on_skip=None
    )
    failed = [(one["check_name"], one["exception"]) for one in results if one["status"] == "failed"]
    assert failed == []
    # asked for by an environment variable, for arrays that hold no text, for a method it lacks
    skipped = {one["check_name"] for one in results if one["status"] == "skipped"}
    lacking = "check_classifiers_multilabel_output_format_decision_function"
    assert skipped <= {"check_array_api_input", lacking}
    assert len(results) > (40 if every else 12)


@pytest.mark.parametrize("kind", [Embedder, Classifier, Regressor])
def test_checks_without_data_pass_on_the_estimators_themselves(folder, kind):
    for name in WITHOUT_DATA:
        getattr(estimator_checks, name)(kind.__name__, kind(folder))
    with pytest.warns(SkipTestWarning, match="requires input"):  # the tags say it is texts
        estimator_checks.check_estimator(kind(folder))


@pytest.mark.data
def test_the_distilbert_experiment(data_dir, minilm):
    rows = list(read_text_examples(data_dir / "sst2" / "train.tsv"))[:80]
    texts, labels = [row.text for row in rows], [row.label for row in rows]
    model = cloze.load(minilm, device="cpu", quiet=True)
    for pooling in ("cls", "mean"):
        embedder = Embedder(model, pooling=pooling, normalize=False)
        pipeline = make_pipeline(embedder, LogisticRegression(max_iter=5000))
        pipeline.fit(texts[:60], labels[:60])
        vectors = cloze.embed(model, texts, pooling=pooling, normalize=False)
        by_hand = LogisticRegression(max_iter=5000).fit(vectors[:60], labels[:60])
        np.testing.assert_allclose(
            pipeline.predict_proba(texts[60:]), by_hand.predict_proba(vectors[60:]), atol=1e-3
        )
        assert pipeline.score(texts[:60], labels[:60]) > 0.9
