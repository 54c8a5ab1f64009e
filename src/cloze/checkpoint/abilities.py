"""What our own families are and can do; a verb asked of another says so instead of failing."""

from collections.abc import Mapping
from dataclasses import dataclass

from cloze.errors import InputError

_LANGUAGE = {
    "suggest": "the next words of a text",
    "generate": "a text that goes on",
    "evaluate": "perplexity, bits per byte",
    "compare": "several language models in one table",
    "tokenize": "ids and character offsets",
}
_TRANSLATOR = {
    "translate": "sentences in another language",
    "evaluate": "BLEU, by length too",
    "compare": "several translators in one table",
    "tokenize": "ids and character offsets",
}


@dataclass(frozen=True)
class Ability:
    """A family in words, and its verbs."""

    name: str
    verbs: Mapping[str, str]


OWN: Mapping[str, Ability] = {
    "ngram": Ability("an n-gram model", _LANGUAGE | {"export": "an ARPA file"}),
    "nnlm": Ability("an NNLM", _LANGUAGE),
    "lstm": Ability("an LSTM language model", _LANGUAGE),
    "word2vec": Ability(
        "word vectors",
        {
            "similar": "nearest words, analogies, the odd one out",
            "evaluate": "analogies, judged similarities",
            "compare": "several sets of vectors in one table",
            "export": "word2vec's text and binary files",
        },
    ),
    "transformer": Ability("a translator", _TRANSLATOR),
    "seq2seq": Ability("a translator", _TRANSLATOR),
}
"""By `model_type` of the folder; encoders are not among them."""


def own_family(settings: object) -> str | None:
    """Which of our own families a config.json describes; what it says is not trusted."""
    family = settings.get("model_type") if isinstance(settings, dict) else None
    return family if isinstance(family, str) and family in OWN else None


def family_of(model: object) -> str | None:
    """Which of our own families a loaded model is of."""
    family = getattr(getattr(model, "config", model), "family", None)
    return family if isinstance(family, str) and family in OWN else None


def can(model: object, verb: str) -> None:
    """Raise unless a model of our own families can do this; encoders speak for themselves."""
    family = family_of(model)
    if family is not None and verb not in OWN[family].verbs:
        raise InputError(f"{OWN[family].name} cannot {verb}", fix=_remedy(family))


def refuse(folder: object, family: str, wanted: str = "encoder") -> InputError:
    """What is wrong where something else was wanted of a folder that holds one of our families."""
    return InputError(f"{folder} holds {OWN[family].name}, no {wanted}", fix=_remedy(family))


def _remedy(family: str) -> str:
    return f"it can {', '.join(OWN[family].verbs)}; or name another model"
