"""Train a neural language model (NNLM, LSTM or ELMo) on running text.

The run's folder is the model's folder, and it contains the model with the lowest perplexity on
held-out text so far:

    config.json model.safetensors tokenizer.json …     the model
    recipe.toml metrics.jsonl data.json report.html vocabulary/ state/
"""

import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.model import Model
from cloze.data.language_model_batches import BPTTBatches, ContextWindows, WordBatches
from cloze.data.sources import Source, Sources, read_rows
from cloze.decode.language import language_model
from cloze.decode.neural import LSTMLanguageModel
from cloze.device import resolve_device
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, write_json
from cloze.make.best_model import fit_best, new_state
from cloze.make.ngram import train_lm_tokenizer
from cloze.make.recipe.data import LanguageModelData
from cloze.make.recipe.language_models import LanguageModelRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.run_folder import check_extras, check_one_process, prepare_folder
from cloze.make.sequence_models import load_or_train_tokenizer, open_base, start_sequence_model
from cloze.make.sources import check_can_reread, name_sources, no_text_error, resolve_sources
from cloze.metrics.perplexity import perplexity, score_language_model
from cloze.models.configs.ngram import BOS, EOS, UNK
from cloze.models.elmo import Elmo
from cloze.models.language import OpenVocabulary, Vocabulary
from cloze.nn.utils import eval_mode
from cloze.objectives.bidirectional_lm import bidirectional_objective
from cloze.objectives.core import Learner
from cloze.objectives.language_model import (
    RecurrentModel,
    StatefulLSTM,
    language_model_objective,
)
from cloze.report.page import write_report
from cloze.text.tokenizer import Tokenizer
from cloze.text.word_characters import WordCharacterTokenizer
from cloze.train.callbacks import CallbackList
from cloze.train.fit import one_batch_each
from cloze.train.result import RunResult
from cloze.train.run_files import DATA_FACTS, VOCABULARY

_BATCH = 1000  # lines tokenized at once


def pretrain_language(
    sources: Sources,
    out: PathLike,
    recipe: LanguageModelRecipe,
    *,
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Train an NNLM, an LSTM or an ELMo on running text, one sentence per line.

    It is a new model, or continues the recipe's `model.init_from` and keeps its vocabulary and
    configuration. After every epoch the model is evaluated on held-out text, and the folder
    contains the best one at the end. SIGTERM and Ctrl-C save the state and end the run; `resume`
    continues it, bit-exactly if the budget is in epochs, steps or tokens.

    Args:
        sources: what `cloze.data.sources.read_rows` reads; if empty, the recipe's `data.sources`.
        out: the run's and the model's folder.
        recipe: a complete recipe.
        force: overwrite what is in `out`.
        callbacks: what is called while the run is prepared and trained.
    """
    check_extras(recipe.run)
    texts = resolve_sources(sources, recipe.data.sources)
    data = replace(recipe.data, sources=name_sources(texts), dev=name_sources(recipe.data.dev))
    named = replace(recipe, data=data)
    with start_sequence_model(
        out, named, force=force, load_vocabulary=lambda path: _load_vocabulary(path, recipe)
    ) as (folder, made, base):
        check_base(made.model.init_from, base)
        lines = read_lines(texts, made.data)
        prepare_folder(folder, made.to_file())
        return _train(lines, folder, made, base, callbacks or CallbackList())


def resume_language(
    out: PathLike,
    recipe: LanguageModelRecipe,
    *,
    sources: Sources = (),
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Continue the run in a folder with its recipe.

    `sources` gives the text again where it has moved or the recipe could not name it.
    """
    check_one_process()
    check_extras(recipe.run)
    texts = resolve_sources(sources, recipe.data.sources)
    check_can_reread(texts)
    base = open_base(recipe)
    with lock_folder(Path(out)):
        lines = read_lines(texts, recipe.data)
        return _train(lines, Path(out), recipe, base, callbacks or CallbackList())


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Sentences, none of them blank."""

    train: list[str]
    dev: list[str]


def read_lines(sources: Sequence[Source], table: LanguageModelData) -> Lines:
    """The lines of the sources; the last ones are held out if no `dev` is named."""
    train, dev = (_read_column(some, table.text_column) for some in (sources, table.dev))
    if not table.dev and table.hold_out:
        kept = len(train) - math.ceil(table.hold_out * len(train))
        if train and not kept:
            raise InputError(
                "a single line cannot be split into training and dev text",
                fix="give more text, or name dev text: --dev PATH",
            )
        train, dev = train[:kept], train[kept:]
    if not train:
        raise no_text_error()
    return Lines(train=train, dev=dev)


def _read_column(sources: Sequence[Source], column: str | None) -> list[str]:
    if not sources:
        return []
    return [row.text for row in read_rows(list(sources), text_column=column) if row.text.strip()]


@dataclass(frozen=True)
class RunningText:
    """Running text as token ids, with an end token after every sentence.

    If the vocabulary is open (ELMo), each sentence has a begin token too, and the ids of unknown
    words are beyond those of the known ones.
    """

    ids: NDArray[np.int32]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, lines: Sequence[str], tokenizer: Tokenizer) -> "RunningText":
        """Tokenize lines."""
        vocabulary, begin = Vocabulary(tokenizer), list[int]()
        if isinstance(tokenizer, WordCharacterTokenizer):
            vocabulary, begin = OpenVocabulary(tokenizer), [BOS]
        parts = [
            np.array(
                [
                    number
                    for ids in vocabulary.encode(lines[at : at + _BATCH])
                    if ids
                    for number in (*begin, *ids, EOS)
                ],
                np.int32,
            )
            for at in range(0, len(lines), _BATCH)
        ]
        ids = np.concatenate([*parts, np.zeros(0, np.int32)])
        if not len(ids):
            raise no_text_error()
        return cls(ids, vocabulary)

    @cached_property
    def known_ids(self) -> NDArray[np.int32]:
        """The ids, with <unk> for every unknown word."""
        return np.where(self.ids < len(self.vocabulary.tokens), self.ids, UNK)

    def frequencies(self, words: int) -> NDArray[np.float32]:
        """How often each word occurs, plus one."""
        return np.bincount(self.known_ids, minlength=words).astype(np.float32) + 1

    @cached_property
    def fingerprint(self) -> list[int]:
        """Identifies the text: its length and a checksum, also of the spelling of unknown words."""
        found = [len(self.ids), zlib.crc32(self.ids.tobytes())]
        if isinstance(self.vocabulary, OpenVocabulary):
            found.append(zlib.crc32("\n".join(self.vocabulary.spellings).encode()))
        return found


def _train(
    lines: Lines,
    out: Path,
    recipe: LanguageModelRecipe,
    base: Model | None,
    callbacks: CallbackList,
) -> RunResult:
    tokenizer = load_or_train_tokenizer(
        out / VOCABULARY, base, lambda: _train_tokenizer(lines.train, recipe, callbacks)
    )
    text = RunningText.of(lines.train, tokenizer)
    model = base or _build_model(recipe, tokenizer, text)
    model.module.to(resolve_device(recipe.run.device))
    batches = _batches(text, recipe, model)
    callbacks.on_log(
        f"{len(text.ids):,} training tokens, {model.config.vocab_size:,} words, "
        f"{sum(weight.numel() for weight in model.module.parameters()):,} parameters"
    )
    module, rows = model.module, recipe.run.batch_size
    is_elmo = isinstance(module, Elmo)
    net = StatefulLSTM(module, rows) if is_elmo or isinstance(module, RecurrentModel) else module
    evaluation = _Evaluation(model, lines.dev, text, rows=recipe.run.eval_rows)
    objective = (
        bidirectional_objective
        if is_elmo
        else partial(
            language_model_objective,
            activation_penalty=recipe.run.activation_penalty,
            temporal_penalty=recipe.run.temporal_penalty,
        )
    )
    result = fit_best(
        new_state(Learner(net, objective), recipe, layer_lr_factors(recipe, model)),
        recipe,
        out=out,
        batches=one_batch_each(batches.batch),
        steps_per_epoch=batches.per_epoch,
        fingerprint={
            "recipe": run_fingerprint(recipe, "data.sources", "data.dev"),
            "text": text.fingerprint,
            "dev": evaluation.fingerprint,
        },
        evaluate=evaluation if lines.dev else None,
        save_model=lambda: model.save_into(out),
        callbacks=callbacks,
    )
    _write_outputs(out, text, lines)
    callbacks.on_train_end(result)
    return result


def layer_lr_factors(recipe: LanguageModelRecipe, model: Model) -> Callable[[str], float]:
    """Discriminative learning rates: each layer has `layer_decay` times the rate of the next.

    Howard & Ruder 2018, §3.2 (their factor 2.6 is 1/0.38 here). The embeddings are layer 0; a tied
    output shares their rate.
    """
    decay, layers = recipe.run.layer_decay, getattr(model.config, "num_layers", 0)

    def factor(name: str) -> float:
        if layer := re.search(r"(?:\.rnn\.|ward_)layers\.(\d+)\.", name):
            depth = int(layer[1]) + 1
        else:
            is_input = "embeddings" in name and ".output." not in name
            depth = 0 if is_input else layers
        return decay ** (layers - depth)

    return factor


class _Evaluation:
    """Perplexity of held-out lines, beside that of the frequencies of the training tokens."""

    def __init__(
        self, model: Model, lines: Sequence[str], text: "RunningText", *, rows: int = 1
    ) -> None:
        self._model, self._lines, self._rows = language_model(model), lines, rows
        self._module = model.module
        encoded = self._model.encode_texts(lines) if lines else []
        self._encoded = encoded
        flat = [id_ for one in encoded for id_ in one]
        self.fingerprint = [len(flat), zlib.crc32(np.array(flat, np.int32).tobytes())]
        counts = text.frequencies(model.config.vocab_size)
        ends = [EOS for one in encoded if not one or one[-1] != EOS]
        known = [id_ if id_ < len(counts) else UNK for id_ in flat]
        logs = np.log(counts / counts.sum())[[*known, *ends]]
        self._unigram = perplexity(-float(logs.mean())) if lines else math.nan

    def __call__(self) -> dict[str, float]:
        with eval_mode(self._module):
            losses = self._compute_losses()
        scores = {"loss": losses[0], "perplexity": perplexity(losses[0])}
        if len(losses) > 1:
            scores["backward_perplexity"] = perplexity(losses[1])
        return {**scores, "unigram_perplexity": self._unigram, "score": -fmean(losses)}

    def _compute_losses(self) -> list[float]:
        """The mean loss of a token, and that of the backward direction if there is one."""
        is_carried = self._rows > 1 and not isinstance(self._module, Elmo)
        if is_carried and isinstance(self._model, LSTMLanguageModel):
            tokens = sum(len(one) - 1 for one in self._encoded)
            return [-self._model.sum_log_probs(self._encoded, self._rows) / tokens]
        found = score_language_model(self._model, self._lines)
        totals = (found.log_p, found.backward_log_p)
        return [-total / found.tokens for total in totals if total is not None]


def _train_tokenizer(
    lines: Sequence[str], recipe: LanguageModelRecipe, callbacks: CallbackList
) -> Tokenizer:
    table = recipe.vocabulary
    if table.folder is not None:
        return _load_vocabulary(table.folder, recipe)
    trained = train_lm_tokenizer(
        lines,
        kind=table.kind,
        size=table.size,
        min_count=table.min_count,
        lowercase=table.lowercase,
        progress=callbacks.on_progress,
    )
    return _adapt_tokenizer(trained, recipe)


def _load_vocabulary(folder: str, recipe: LanguageModelRecipe) -> Tokenizer:
    return _adapt_tokenizer(Tokenizer.load(folder), recipe)


def check_base(source: object, base: Model | None) -> None:
    """Raise if the model to continue cannot predict words; `source` names it."""
    if base is not None and getattr(base.config, "output", "") == "none":
        raise ConfigError(
            f"{source} is an ELMo without a vocabulary and an output layer, as published models "
            "are, so it cannot be trained further",
            fix="train a new one (cloze pretrain --family elmo); this one works with embed, and as "
            "features",
        )


def _adapt_tokenizer(tokenizer: Tokenizer, recipe: LanguageModelRecipe) -> Tokenizer:
    """ELMo reads the characters of words."""
    if recipe.model.family != "elmo":
        return tokenizer
    return WordCharacterTokenizer.from_tokenizer(tokenizer)


def _build_model(recipe: LanguageModelRecipe, tokenizer: Tokenizer, text: RunningText) -> Model:
    rng = torch.Generator().manual_seed(recipe.run.seed)
    words = len(Vocabulary(tokenizer).tokens)
    config = recipe.model.new_config
    known = {"vocab_size": words, "bos_id": BOS}
    config = replace(config, **{name: known[name] for name in config.FROM_DATA})
    made = Model.from_config(config, tokenizer, rng=rng)
    if recipe.optimizer.name != "sgd":
        # SGD that starts from the frequencies of words does not get better than them
        made.module.init_output_bias(torch.from_numpy(text.frequencies(config.vocab_size)))
    return made


def _batches(
    text: RunningText, recipe: LanguageModelRecipe, model: Model
) -> ContextWindows | BPTTBatches | WordBatches:
    run, module = recipe.run, model.module
    is_elmo = isinstance(module, Elmo)
    if is_elmo or isinstance(module, RecurrentModel):
        is_stateless = is_elmo and not module.config.carry_state
        batches = BPTTBatches(
            text.ids,
            batch_size=run.batch_size,
            num_steps=run.bptt_length,
            reset_prob=1.0 if is_stateless else run.state_reset_prob,
            seed=run.seed,
            is_variable=run.variable_length,
        )
        return _add_characters(batches, text, module) if is_elmo else batches
    order = module.config.order
    return ContextWindows(
        text.ids, order=order, bos_id=BOS, eos_id=EOS, batch_size=run.batch_size, seed=run.seed
    )


def _add_characters(batches: BPTTBatches, text: RunningText, module: Elmo) -> WordBatches:
    """Batches with the characters of the words; the output layer may need those of all words."""
    assert isinstance(text.vocabulary, OpenVocabulary)
    characters, size = text.vocabulary.characters(), module.config.vocab_size
    module.set_vocabulary(torch.from_numpy(characters[:size]))
    ids = np.arange(len(characters))
    return WordBatches(
        batches,
        characters,
        np.where(ids < size, ids, UNK),
        max_filter_width=module.embeddings.max_width,
        bos_id=BOS,
        eos_id=EOS,
    )


def _write_outputs(out: Path, text: RunningText, lines: Lines) -> None:
    summary = {
        "lines": len(lines.train),
        "tokens": len(text.ids),
        "unknown": int((text.known_ids == UNK).sum()),
        "held_out_lines": len(lines.dev),
    }
    write_json(out / DATA_FACTS, summary)
    write_report(out)
