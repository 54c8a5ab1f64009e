"""Evaluation of encoders without a task against transformers and sentence-transformers."""

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from torch.nn import functional as F

import cloze
from cloze.data.config import Batching, CorpusOptions
from cloze.data.prepare import prepare_corpus
from cloze.data.samples import Sampling
from cloze.interop.sentence_transformers import Pooling
from cloze.metrics.pretraining import make_evaluation_epoch, make_evaluation_masking
from cloze.objectives.masking import Masking, mask_batch
from helpers import scramble, tiny_model

pytestmark = pytest.mark.parity

STORIES = "the cat sat. a b c d.\ne f g h.\n\nthe cats sat, a b.\ni j.\n\na a b c d e. d e.\n" * 3
FAMILIES = {
    "bert": (("mlm", "nsp"), transformers.BertForPreTraining),
    "distilbert": (("mlm",), transformers.DistilBertForMaskedLM),
    "modernbert": (("mlm",), transformers.ModernBertForMaskedLM),
}


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_mlm_accuracy_sample_by_sample(family, tmp_path):
    heads, kind = FAMILIES[family]
    model = tiny_model(*heads, family=family)
    peer = kind.from_pretrained(model.save(tmp_path / "m")).eval()
    (tmp_path / "text.txt").write_text(STORIES)
    made = cloze.evaluate(model, tmp_path / "text.txt", max_length=16)
    corpus = prepare_corpus(
        [tmp_path / "text.txt"],
        model.tokenizer,
        tmp_path / "c",
        CorpusOptions(hold_out=0.0),
        workers=1,
    )
    sampling = Sampling(pairs="nsp" if "nsp" in heads else "none", max_length=16)
    samples = make_evaluation_epoch(corpus.train, model.tokenizer, sampling, Batching()).samples
    masking, hits, losses, pairs = (
        make_evaluation_masking(Masking.from_tokenizer(model.tokenizer)),
        [],
        [],
        [],
    )
    for number in range(len(samples)):
        one = mask_batch(samples.make_batch(np.array([number])), masking, seed=1)
        ids, targets = torch.tensor(one.input_ids), torch.tensor(one.targets)
        assert (ids[one.masked_positions] == model.tokenizer.mask_id).all()
        types = {"token_type_ids": torch.tensor(one.token_type_ids)[None]}
        out = peer(input_ids=ids[None], **(types if family == "bert" else {}))
        words = out.prediction_logits if family == "bert" else out.logits
        hits += (words[0, one.masked_positions].argmax(-1) == targets).tolist()
        losses += F.cross_entropy(
            words[0, one.masked_positions], targets, reduction="none"
        ).tolist()
        if family == "bert":
            pairs.append(int(out.seq_relationship_logits.argmax()) == one.labels[0])
    assert made.counts["masked"] == len(hits) > 10
    assert made.scores["mlm_accuracy"] == pytest.approx(sum(hits) / len(hits))
    assert made.scores["mlm_loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
    if pairs:
        assert made.scores["nsp_accuracy"] == pytest.approx(sum(pairs) / len(pairs))


@pytest.mark.parametrize(
    "pooling",
    [Pooling(modes=("mean",), normalize=True), Pooling(modes=("cls", "max"), max_seq_length=7)],
    ids=lambda pooling: "+".join(pooling.modes),
)
def test_similarities_equal_sentence_transformers(pooling, tmp_path):
    base = tiny_model()
    scramble(base.module, seed=3)
    folder = cloze.Model(
        module=base.module, tokenizer=base.tokenizer, config=base.config, pooling=pooling
    ).save(tmp_path / "m")
    a = ["the cat sat.", "a b c d e f g h i j a b c", "cat", "猫 sat, the cats"]
    b = ["the cats", "a b", "sat the cat.", "d e f"]
    rows = [f"{one}\t{other}\t{n}.5\n" for n, (one, other) in enumerate(zip(a, b, strict=True))]
    table = tmp_path / "dev.tsv"
    table.write_text("".join(rows), encoding="utf-8")
    made = cloze.evaluate(cloze.load(folder), table, truncation="head")
    peer = SentenceTransformer(str(folder), device="cpu")
    theirs = peer.similarity_pairwise(peer.encode(a), peer.encode(b)).tolist()
    assert [one.score for one in made.predictions] == pytest.approx(theirs, abs=1e-5)
