"""VSE-C: a two-tower model, trained against the hardest of many adversarial captions.

b images of this process and B of all, K views, P adversarial captions of this process or of all, D dimensions.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vse_core.distributed import gather_counts, gather_rows, rank
from vse_core.losses.adversarial import AdversarialOutput
from vse_core.similarity import similarity_matrix
from vse_core.static_shapes import has_static_shapes


class AdversarialModel(nn.Module):
    """The towers as training against adversarial captions calls them (VSE-C, Shi et al. 2018, and its released code).

    Every image is compared with the adversarial captions of the whole global batch. Only its hardest enters the loss,
    so all are encoded without a gradient, ``chunk`` captions at once, and each image's hardest once more with one.
    The towers are a :class:`~vse_core.models.model.TwoTower`, or what encodes as it does.
    """

    def __init__(self, towers: Any, chunk: int = 256) -> None:
        super().__init__()
        self.towers = towers
        self.chunk = chunk

    def forward(
        self,
        images: Tensor,
        lengths_or_mask: Tensor,
        tokens_BL: Tensor,
        token_lengths_B: Tensor,
        adversarial_tokens_PL: Tensor | None = None,
        adversarial_lengths_P: Tensor | None = None,
    ) -> AdversarialOutput:
        """Encode a batch of pairs and each image's hardest adversarial caption.

        The first four arguments are the towers'. The P adversarial captions, of any of the captions, are word ids and
        lengths; P may be 0. They are None on all processes while training does without.
        """
        images_bKD, texts_bD = self.towers(images, lengths_or_mask, tokens_BL, token_lengths_B)
        hardest_bD = None
        if adversarial_tokens_PL is not None and adversarial_lengths_P is not None:
            hardest = self._hardest(images_bKD.detach(), adversarial_tokens_PL, adversarial_lengths_P)
            if hardest is not None:
                tokens_QL, lengths_Q, rows_b = hardest
                hardest_bD = self.towers.encode_texts(tokens_QL, lengths_Q)[rows_b]
        return AdversarialOutput(images_bKD, texts_bD, hardest_bD)

    @torch.no_grad()
    def _hardest(
        self, images_bKD: Tensor, tokens_PL: Tensor, lengths_P: Tensor
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Tokens and lengths of the captions that are some image's hardest, and for every image which of them is.

        With static shapes they are one for each image. None if no process has an adversarial caption.
        """
        pools = gather_counts([*tokens_PL.shape], tokens_PL.device)
        counts = [captions for captions, _ in pools]
        if not sum(counts):
            return None
        longest = max(length for _, length in pools)
        tokens_PL = gather_rows(nn.functional.pad(tokens_PL, (0, longest - tokens_PL.shape[1])), counts)
        lengths_P = gather_rows(lengths_P, counts)
        texts_PD = gather_rows(self._encoded(tokens_PL, lengths_P, counts).to(images_bKD), counts)
        chosen_b = similarity_matrix(images_bKD, texts_PD).argmax(dim=1)
        if has_static_shapes(chosen_b):
            return tokens_PL[chosen_b], lengths_P[chosen_b], torch.arange(len(chosen_b), device=chosen_b.device)
        chosen_Q, rows_b = chosen_b.unique(return_inverse=True)
        lengths_Q = lengths_P[chosen_Q]
        return tokens_PL[chosen_Q, : int(lengths_Q.max())], lengths_Q, rows_b

    def _encoded(self, tokens_PL: Tensor, lengths_P: Tensor, counts: list[int]) -> Tensor:
        """Return the vectors of this process's captions among those of all.

        Every process encodes as many as the one with most, some of its neighbours' too: processes that share a
        network's weights must call it equally often.
        """
        first, most = sum(counts[: rank()]), max(counts)
        start = min(first, sum(counts) - most)
        parts = (x_P[start : start + most].split(self.chunk) for x_P in (tokens_PL, lengths_P))
        texts_PD = torch.cat([self.towers.encode_texts(*part) for part in zip(*parts, strict=True)])
        return texts_PD[first - start :][: counts[rank()]]
