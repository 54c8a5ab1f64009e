"""Build the parts that several models have in common."""

from cloze.models.configs.encoder import EncoderConfig
from cloze.models.configs.lstm import LSTMConfig
from cloze.nn.attention import Attention
from cloze.nn.block import FeedForward, PostNormBlock, PreNormBlock
from cloze.nn.heads import MLMHead
from cloze.nn.layers import ACTIVATIONS, LayerNorm
from cloze.nn.recurrent import StackedRNN


def build_post_norm_block(config: EncoderConfig) -> PostNormBlock:
    """One block of the encoder."""
    size, activation = config.hidden_size, ACTIVATIONS[config.activation]
    return PostNormBlock(
        Attention(size, config.num_heads, config.attention_dropout),
        FeedForward(size, config.intermediate_size, activation),
        dropout=config.dropout,
        norm_eps=config.norm_eps,
    )


def build_pre_norm_block(config: EncoderConfig, attention: Attention) -> PreNormBlock:
    """One block of GPT-2, with this attention."""
    size = config.hidden_size
    return PreNormBlock(
        attention,
        FeedForward(size, config.intermediate_size, ACTIVATIONS[config.activation]),
        attention_norm=LayerNorm(size, eps=config.norm_eps),
        ffn_norm=LayerNorm(size, eps=config.norm_eps),
        dropout=config.dropout,
        ffn_dropout=config.dropout,
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


def build_rnn(config: LSTMConfig) -> StackedRNN:
    """The recurrent layers of a language model, and of a classifier made from it."""
    return StackedRNN(
        config.cell,
        config.embedding_size,
        config.hidden_size,
        num_layers=config.num_layers,
        dropout=config.dropout,
        variational=config.variational_dropout,
        input_dropout=config.input_dropout,
        output_dropout=config.output_dropout,
        weight_dropout=config.weight_dropout,
        output_size=config.output_size,
    )
