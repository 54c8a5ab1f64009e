"""Build the parts that BERT, DistilBERT and RoBERTa have in common."""

from cloze.models.configs.encoder import EncoderConfig
from cloze.nn.attention import Attention
from cloze.nn.block import FeedForward, PostNormBlock
from cloze.nn.heads import MLMHead
from cloze.nn.layers import ACTIVATIONS


def build_post_norm_block(config: EncoderConfig) -> PostNormBlock:
    """One block of the encoder."""
    size, activation = config.hidden_size, ACTIVATIONS[config.activation]
    return PostNormBlock(
        Attention(size, config.num_heads, config.attention_dropout),
        FeedForward(size, config.intermediate_size, activation),
        dropout=config.dropout,
        norm_eps=config.norm_eps,
    )


def build_mlm_head(config: EncoderConfig, activation: str | None = None) -> MLMHead:
    """The masked-LM head, by default with the activation of the blocks."""
    return MLMHead(
        config.hidden_size,
        config.vocab_size,
        ACTIVATIONS[activation or config.activation],
        norm_eps=config.norm_eps,
        tied=config.tie_embeddings,
    )
