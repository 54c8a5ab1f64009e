"""What models are and can do; a verb asked of another says so instead of failing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short

from cloze.errors import InputError

# of encoders, by head; what all of them can do stands under None
_HEADS = {
    "mlm": {"fill": "words for [MASK]"},
    "nsp": {"classify": "of a pair, whether the second text is next or not next"},
    "sequence": {"classify": "the label of a text or a pair"},
    "token": {"tag": "tags of words, and spans"},
    "span": {"answer": "the stretch of a context that answers a question"},
    "choice": {"choose": "the option that goes best with a text"},
    None: {"embed": "vectors of texts or tokens", "tokenize": "ids and character offsets"},
}
_NEXT_WORDS = {"suggest": "the next words of a text", "generate": "a text that goes on"}
_LANGUAGE = {
    **_NEXT_WORDS,
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
    "lstm": Ability("a recurrent language model", _LANGUAGE),
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


def verbs_of(heads: Sequence[str], *, causal: bool) -> dict[str, str]:
    """What an encoder with these heads can do."""
    verbs = {verb: what for head in (*heads, None) for verb, what in _HEADS.get(head, {}).items()}
    if causal and verbs.pop("fill", ""):
        verbs |= _NEXT_WORDS
    return verbs


def can(model: object, verb: str) -> None:
    """Raise unless a model of our own families can do this; encoders speak for themselves."""
    family = family_of(model)
    if family is not None and verb not in OWN[family].verbs:
        raise cannot(OWN[family].name, verb, OWN[family].verbs)


def cannot(name: str, verb: str, able: Iterable[str]) -> InputError:
    """A verb that a model does not do, and those that it does."""
    return InputError(f"{name} cannot {verb}", fix=_remedy(able))


def no_model(given: object) -> InputError:
    """Something else stands where a model should."""
    return InputError(
        f"{short(given)}, of type {type(given).__name__}, is no model",
        fix="give the path of a model's folder, or what cloze.load makes of it",
    )


def refuse(folder: object, family: str, wanted: str = "encoder") -> InputError:
    """What is wrong where something else was wanted of a folder that holds one of our families."""
    return InputError(
        f"{folder} holds {OWN[family].name}, no {wanted}", fix=_remedy(OWN[family].verbs)
    )


def _remedy(able: Iterable[str]) -> str:
    return f"it can {', '.join(able)}; or name another model"
