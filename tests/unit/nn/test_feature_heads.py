"""The BiLSTM on features."""

import torch
from torch.nn.utils.rnn import pack_sequence

from cloze.nn.feature_heads import BiLSTMFeatureHead, FeatureInputs, order_by_time


def test_order_by_time_is_that_of_packed_sequences():
    lengths = [3, 0, 5, 1, 5, 2]
    vectors = torch.arange(sum(lengths))
    order, counts = order_by_time(lengths)
    rows = sorted((row for row in vectors.split(lengths) if len(row)), key=len, reverse=True)
    packed = pack_sequence(rows)
    assert counts.tolist() == packed.batch_sizes.tolist()
    assert vectors[order].tolist() == packed.data.tolist()


def test_a_batch_of_sequences_gives_the_logits_of_each_alone():
    head = BiLSTMFeatureHead(4, 3, hidden_size=5, num_layers=2, inputs=FeatureInputs()).double()
    head.eval()
    lengths = [3, 0, 5, 1, 5]
    vectors = torch.randn(sum(lengths), 4, dtype=torch.float64)
    alone = [head(row, [len(row)]) for row in vectors.split(lengths) if len(row)]
    torch.testing.assert_close(head(vectors, lengths), torch.cat(alone), rtol=0, atol=1e-12)
