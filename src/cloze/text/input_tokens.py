"""The special tokens around the inputs of a causal classifier.

Radford et al. 2018, §3.3 and figure 1:

    classification    start  text  extract
    entailment        start  premise  delimiter  hypothesis  extract
    similarity        start  first  delimiter  second  extract, and the same in the other order
    multiple choice   start  context  delimiter  option  extract, for each option

A head reads the extract token, the last one, which has attended to all others. The tokens are part
of the tokenizer (its template), so that every function and transformers add the same ones.
"""

from tokenizers import Tokenizer as Backend
from tokenizers import processors

from cloze.text.tokenizer import Tokenizer

START, DELIMITER, EXTRACT = "<|start|>", "<|delimiter|>", "<|extract|>"
_AROUND_ONE, _AROUND_TWO = 2, 3  # special tokens of a text, and of a pair


def has_input_tokens(tokenizer: Tokenizer) -> bool:
    """Whether texts have special tokens around and between them, as in BERT."""
    single, pair = (tokenizer.num_special_tokens(pair=pair) for pair in (False, True))
    return single >= _AROUND_ONE and pair >= _AROUND_TWO


def add_input_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with start, delimiter and extract tokens, unless it has such tokens.

    Tokens that its vocabulary lacks are added to it.
    """
    if has_input_tokens(tokenizer):
        return tokenizer
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([START, DELIMITER, EXTRACT])
    template = processors.TemplateProcessing(
        single=f"{START}:0 $A:0 {EXTRACT}:0",
        pair=f"{START}:0 $A:0 {DELIMITER}:0 $B:1 {EXTRACT}:1",
        special_tokens=[
            (token, backend.token_to_id(token)) for token in (START, DELIMITER, EXTRACT)
        ],
    )
    # a ByteLevel step does not add tokens; it moves offsets
    present = backend.post_processor
    is_kept = isinstance(present, processors.ByteLevel)
    backend.post_processor = processors.Sequence([present, template]) if is_kept else template
    return Tokenizer(
        backend, special_tokens=tokenizer.special_tokens, max_length=tokenizer.max_length
    )
