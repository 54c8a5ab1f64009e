"""Perplexity: among how many equally likely words a model would be as unsure as it is."""

import math


def perplexity(loss: float) -> float:
    """E to the mean loss in nats; infinity where no number is large enough."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
