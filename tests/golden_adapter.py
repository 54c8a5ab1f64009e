"""How the current code is called: outputs of a model under names that no refactoring changes.

The only file about the golden folders that touches names which may change: calls of modules,
fields of results, arguments of functions, names of scores. Adapt it in the commit that renames
them; the values it returns stay those that commit 58e9c8d computed (`golden/adapter_58e9c8d.py`).

b rows, t tokens, n real tokens of all rows, s source tokens, d width, v vocabulary.
"""

import warnings

import torch

import cloze
from cloze.errors import TruncationWarning
from cloze.nn.layout import Packed

POOLED = ("nsp", "sequence", "choice")


def module_outputs(model, inputs):
    """Tensors by name, of a fixed batch; the name of the family says how it is called."""
    return FAMILIES[model.config.family](model, inputs)


def _encoder(model, inputs):
    module, ids = model.module, inputs["input_ids"]
    mask, types = inputs["attention_mask"], inputs.get("token_type_ids")
    real = mask.bool()
    *layers, _ = module.hidden_states(ids, mask, types)  # the last is the hidden state
    found = {f"layer.{number}": layer[real] for number, layer in enumerate(layers)}
    hidden = module(ids, mask, types)
    found["last_hidden_state"] = hidden[real]
    firsts = torch.arange(len(ids), device=ids.device) * ids.shape[1]
    for head in model.task_heads:
        rows = module.head_inputs(head, hidden, firsts, mask) if head in POOLED else hidden[real]
        found[f"logits.{head}"] = module.logits(head, rows)
    if module.pooler is not None:
        found["pooler_output"] = module.pooler(hidden[:, 0])
    packed = Packed.from_lengths(real.sum(1).tolist(), ids.device)
    flat = module(ids[real], packed, None if types is None else types[real])
    found["packed.last_hidden_state"] = flat
    for head in model.task_heads:
        rows = module.head_inputs(head, flat, packed.starts, packed) if head in POOLED else flat
        found[f"packed.logits.{head}"] = module.logits(head, rows)
    return found


def _nnlm(model, inputs):
    module, ids = model.module, inputs["input_ids"]
    contexts = ids.unfold(1, model.config.order - 1, 1)  # b windows (n-1)
    return {
        "logits": module(contexts.flatten(0, 1)).unflatten(0, contexts.shape[:2]),
        "next_log_probs": module.step(ids[:, -1], module.compute_state(ids[:, :-1]))[0],
    }


def _recurrent(model, inputs):
    module, ids = model.module, inputs["input_ids"]
    hidden, state = module(ids, module.init_state(len(ids)))
    return {
        "hidden": hidden,
        "logits": module.logits(hidden),
        "state": torch.stack(state),  # 1 or 2, layers b d
        "next_log_probs": module.step(ids[:, -1], module.compute_state(ids[:, :-1]))[0],
    }


def _translator(model, inputs):
    module, target = model.module, inputs["decoder_input_ids"]
    source, real = inputs["input_ids"], inputs["attention_mask"].bool()
    hidden = module(source, real, target)
    found = {"hidden": hidden, "logits": module.logits(hidden)}
    if hasattr(module, "encode"):
        found["encoder"] = module.encode(source, real)[real]
    if getattr(module, "score", None) is not None:
        found["attention"] = module.compute_alignment(source, real, target)
    state, steps = module.init_state(source, real), []
    for tokens in target.unbind(1):
        log_probs, state = module.step(tokens, state)
        steps.append(log_probs)
    found["step_log_probs"] = torch.stack(steps, 1)  # b t v
    swapped = torch.arange(len(source), device=source.device).flip(0)
    again, _ = module.step(target[swapped, -1], module.reorder(state, swapped))
    return found | {"reordered_log_probs": again}


def _ngram(model, inputs):
    ids = inputs["input_ids"].cpu().numpy()
    rows = [model.module.next_log_probs(ids[:end].tolist()) for end in range(1, len(ids))]
    return {
        "log_probs": torch.from_numpy(model.module.log_probs(ids)),
        "next_log_probs": torch.stack([torch.from_numpy(row) for row in rows]),
    }


def _word2vec(model, inputs):
    texts = bytes(inputs["words"].tolist()).decode().split()
    return {"vectors": torch.stack([torch.from_numpy(model.module[word].copy()) for word in texts])}


FAMILIES = {
    "bert": _encoder,
    "distilbert": _encoder,
    "modernbert": _encoder,
    "nnlm": _nnlm,
    "lstm": _recurrent,
    "transformer": _translator,
    "seq2seq": _translator,
    "ngram": _ngram,
    "word2vec": _word2vec,
}


def shape_of(model):
    """What a configuration says, in words of our own; what a family lacks is left out."""
    names = ("vocab_size", "hidden_size", "num_layers", "num_heads", "order", "cell")
    shape = {name: getattr(model.config, name, None) for name in names}
    return {name: value for name, value in shape.items() if value is not None}


# Inference functions, each on the inputs of data/inputs.json; arrays among the results are tensors.


def fill(model, inputs):
    return [
        {
            "text": found.text,
            "masks": [
                [one.start, one.end, [[guess.word, guess.score] for guess in one.predictions]]
                for one in found.masks
            ],
        }
        for found in cloze.fill(model, inputs["masked"])
    ] + [
        [guess.word, guess.score]
        for guess in cloze.fill(model, inputs["masked"][0], candidates=inputs["candidates"])
        .masks[0]
        .predictions
    ]


HEAD = {"truncation": "head"}  # without a warning


def embed(model, inputs):
    texts = inputs["texts"]
    first, *_ = cloze.embed(model, texts, pooling="none", **HEAD)
    return {
        "default": torch.from_numpy(cloze.embed(model, texts, **HEAD)),
        "mean": torch.from_numpy(cloze.embed(model, texts, pooling="mean", normalize=True, **HEAD)),
        "layers": torch.from_numpy(
            cloze.embed(model, texts, layers=[0, -1], pooling="max", **HEAD)
        ),
        "tokens": torch.from_numpy(first.vectors),
    }


def classify(model, inputs):
    found = cloze.classify(model, inputs["texts"])
    return [[one.label, one.score, dict(one.scores)] for one in found]


def classify_pairs(model, inputs):
    first, second = zip(*inputs["pairs"], strict=True)
    found = cloze.classify(model, list(first), list(second))
    return [[one.label, one.score, dict(one.scores)] for one in found]


def tag(model, inputs):
    return [
        {
            "tags": list(one.tags),
            "scores": list(one.scores),
            "spans": [[s.text, s.label, s.start, s.end, s.score] for s in one.spans],
        }
        for one in cloze.tag(model, inputs["texts"])
    ]


def answer(model, inputs):
    found = [cloze.answer(model, q, context, top=3) for q, context in inputs["questions"]]
    return [
        {
            "best": [one.text, one.start, one.end, one.logit, one.probability],
            "null_score_difference": one.no_answer_margin,
            "candidates": [
                [c.text, c.start, c.end, c.logit, c.probability] for c in one.candidates
            ],
        }
        for one in found
    ]


def choose(model, inputs):
    found = [cloze.choose(model, text, options) for text, options in inputs["choices"]]
    return [[one.option, one.text, one.score, list(one.scores)] for one in found]


def suggest(model, inputs):
    found = cloze.suggest(model, inputs["prompts"], top=5)
    return [
        [[s.word, s.probability] for s in one.suggestions] + [one.unk_probability] for one in found
    ]


def generate(model, inputs):
    prompt = inputs["prompts"][0]
    greedy = cloze.generate(model, prompt, max_new_tokens=6, temperature=0.0)
    sampled = cloze.generate(model, prompt, max_new_tokens=6, samples=3, top_p=0.9, seed=1)
    return [[g.continuation, g.log_probability, g.finished] for g in (*greedy, *sampled)]


def translate(model, inputs):
    texts = inputs["prompts"]
    align = getattr(model.config, "attention", "") != "none"
    beam = cloze.translate(model, texts, n_best=2, align=align)
    greedy = cloze.translate(model, texts, beam=1)
    return {
        "beam": [[[c.text, c.score, c.log_probability] for c in one.candidates] for one in beam],
        "greedy": [one.text for one in greedy],
        "attention": [one.candidates[0].alignment.weights.tolist() for one in beam if align],
    }


def similar(model, inputs):
    words = inputs["words"]
    unseen = inputs["unseen"] if model.config.char_ngrams is not None else []
    near = cloze.similar(model, [*words, *unseen], top=4)
    a, b, c = words[:3]
    return {
        "similar": [[[one.word, one.score] for one in found.words] for found in near],
        "analogy": [[one.word, one.score] for one in cloze.analogy(model, a, b, c, top=3).words],
        "cosine": cloze.cosine(model, a, b),
        "odd_one_out": cloze.odd_one_out(model, words).word,
    }


SCORES = {
    "brevity_penalty": "brevity",
    "majority_baseline": "commoner_pair_accuracy",
    "unigram_baseline": "unigram_accuracy",
    "matthews_correlation": "matthews",
    "mean_squared_error": "squared_error",
    "exact_match": "exact",
    "has_answer_exact_match": "has_answer_exact",
    "no_answer_accuracy": "no_answer",
}  # new name of a score: the one it had in commit 58e9c8d


def evaluate(model, files):
    """Scores of a model on files, by the names that commit 58e9c8d gave them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # a limit of 20 tokens
        found = cloze.evaluate(model, files).scores
    newer = {"bits_per_character"}  # scores that it did not have
    return {SCORES.get(name, name): one for name, one in found.items() if name not in newer}


FUNCTIONS = {
    one.__name__: one
    for one in (
        fill, embed, classify, classify_pairs, tag, answer, choose,
        suggest, generate, translate, similar,
    )
}  # fmt: skip
