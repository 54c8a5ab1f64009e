import numpy as np
import pytest
import torch

from cloze.errors import InputError
from cloze.retrieval.exact import search_exact


def test_keys_of_a_memory_mapped_array_and_half_precision(tmp_path):
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(300, 8)).astype(np.float16)
    np.save(tmp_path / "keys.npy", keys)
    queries = rng.normal(size=(5, 8)).astype(np.float32)
    stored = np.load(tmp_path / "keys.npy", mmap_mode="r")
    scores, indices = search_exact(torch.tensor(queries), stored, 7, key_block=64)
    expected = torch.tensor(queries @ keys.astype(np.float32).T).topk(7)
    assert torch.equal(indices, expected.indices)
    torch.testing.assert_close(scores, expected.values)


def test_wrong_shapes_and_k_are_errors():
    with pytest.raises(InputError, match="columns"):
        search_exact(torch.ones(2, 3), torch.ones(4, 2), 1)
    with pytest.raises(InputError, match="k is 0"):
        search_exact(torch.ones(2, 3), torch.ones(4, 3), 0)
    scores, indices = search_exact(torch.ones(2, 3), torch.ones(0, 3), 5)
    assert scores.shape == indices.shape == (2, 0)
