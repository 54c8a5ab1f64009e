"""The objective of CLIP: each image finds its caption, and each caption its image.

b images of a part, g those of the whole batch, v = 2g vectors, d their size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.data.images.image_text_batch import CLIP_LOSS, ImageTextBatch
from cloze.models.clip import Clip
from cloze.objectives.contrastive import MultipleNegativesLoss
from cloze.objectives.core import JointOutput, Terms, upcast_to_float32
from cloze.objectives.diffusion import place_images, read_images


@dataclass(frozen=True)
class ClipObjective:
    """The symmetric cross-entropy of the similarities, with a learned temperature.

    Radford et al. 2021, fig. 3: the mean of the losses of both directions, with the logits
    e^logit_scale · cos(image, caption). It is a `JointObjective`: every image is compared with all
    captions of the batch. Deviation: another image with the same caption is no negative.
    """

    def embed(self, model: Clip, batch: ImageTextBatch) -> Tensor:
        """The vectors of the captions of a part, then those of its images: 2b d."""
        placed = place_images(model, batch)
        tensors = placed.tensors
        texts = model.embed_texts(tensors["input_ids"], tensors["attention_mask"])
        images = model.embed_images(model.standardize(read_images(placed)))
        return upcast_to_float32(torch.cat([texts, images]))

    def __call__(
        self,
        model: Clip,
        batch: ImageTextBatch,
        rng: torch.Generator | None = None,  # noqa: ARG002
    ) -> JointOutput:
        return JointOutput(self.embed(model, batch), {}, self.get_loss_weights(model))

    def get_loss_weights(self, model: Clip) -> tuple[Tensor, ...]:
        """The temperature."""
        return (model.logit_scale,)

    def compute_loss(
        self, vectors: Tensor, batch: ImageTextBatch, loss_weights: tuple[Tensor, ...] = ()
    ) -> Terms:
        """The loss of all vectors (v d) times the number of images, and how many captions hit."""
        (logit_scale,) = loss_weights
        loss = MultipleNegativesLoss(scale=logit_scale.exp(), symmetric=True)
        found = loss(vectors, batch.layout)
        assert found.hits is not None
        count = len(batch.layout)
        return {CLIP_LOSS: found.loss * count, f"{CLIP_LOSS}.accuracy": found.hits}
