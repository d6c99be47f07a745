"""UniVSE: images, regions, sentences and the components of sentences in one space.

O objects, A pairs of an adjective and a noun, T triples of a subject, a relation and an object, N negatives of a
component, L words of the longest triple, X triples of an image, C captions.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from vse_core.encoders.components import ComponentEncoder, combine, compose
from vse_core.encoders.image import RegionEncoder
from vse_core.losses.components import ComponentVectors, UnifiedOutput
from vse_core.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The components of C captions, all in one vocabulary of word ids; O, A and T may be 0.

    The owner of a component is the row of its caption; components may come in any order. Negatives, and what follows
    them, are what training contrasts a component with.

    Objects are ids of nouns, pairs of an adjective and its noun, triples of a subject, the words of a relation and an
    object, filled up with -1. Negatives are other nouns; pairs, the first half with another adjective, the second half
    with another noun; triples of which subject, relation or object is another. Triples of one number are equal in all
    batches and processes; the numbers of those that are true of a caption's image are filled up with -1.
    """

    objects_O: Tensor
    object_owner_O: Tensor
    object_negatives_ON: Tensor | None = None
    pairs_A2: Tensor
    pair_owner_A: Tensor
    pair_negatives_AN2: Tensor | None = None
    triples_TL: Tensor
    triple_owner_T: Tensor
    triple_negatives_TNL: Tensor | None = None
    triple_numbers_T: Tensor | None = None
    true_triples_CX: Tensor | None = None

    def to(self, device: torch.device | str) -> Self:
        """Copy to a device; from pinned memory the copy overlaps with computation."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if value is not None}
        return replace(self, **{name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()})


class UnifiedModel(Model):
    """Unified visual-semantic embeddings (Wu et al. 2019): a caption's vector covers all its components.

    A caption is embedded as a sentence, u_sent, and as the sum of its objects, attributes and relations, u_comp.
    Training aligns each of them with the image; retrieval compares the image with

        u_cap = Norm( alpha * u_sent + (1 - alpha) * u_comp ).

    (:func:`~vse_core.encoders.components.combine`). alpha may be changed at any time: training does not use it.
    """

    image_encoder: RegionEncoder
    text_encoder: ComponentEncoder

    def __init__(self, image_encoder: RegionEncoder, text_encoder: ComponentEncoder) -> None:
        super().__init__(image_encoder, text_encoder)
        self.alpha = text_encoder.alpha

    def encode_texts(self, tokens_CL: Tensor, lengths_C: Tensor, components: Components | None = None) -> Tensor:
        """One unit vector per caption, u_cap: (C, D); its sentence alone if no components are given."""
        if components is None:
            return self.text_encoder.encode_sentences(tokens_CL, lengths_C)
        sentences_CD, composed_CKD, has_CK = self.encode_halves(tokens_CL, lengths_C, components)
        return combine(sentences_CD, composed_CKD[:, 0], has_CK[:, 0], self.alpha)

    def encode_halves(
        self, tokens_CL: Tensor, lengths_C: Tensor, components: Components
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parts of captions' vectors: u_sent (C, D), u_comp (C, K, D), and which captions have any (C, K).

        The K = 4 are of all components, then of objects, attributes and relations alone (UniVSE, table 2).
        :func:`~vse_core.encoders.components.combine` mixes them by any alpha. Negatives change nothing.
        """
        sentences_CD, composed_CD, has_C, *kinds = self._encode_captions(tokens_CL, lengths_C, components)
        alone = [compose(len(lengths_C), [kind.own], [kind.owners_M]) for kind in kinds]
        composed, has = zip((composed_CD, has_C), *alone, strict=True)
        return sentences_CD, torch.stack(composed, dim=1), torch.stack(has, dim=1)

    def forward(
        self,
        features_BNF: Tensor,
        lengths_B: Tensor,
        tokens_BL: Tensor,
        token_lengths_B: Tensor,
        components: Components,
    ) -> UnifiedOutput:
        """Encode all inputs of the loss, in one call as DistributedDataParallel requires.

        Every parameter takes part in it, also if a batch has no components. Those of inference are a ValueError.
        """
        if components.triple_numbers_T is None or components.true_triples_CX is None:
            raise ValueError("training contrasts triples, and needs their numbers and those true of each image")
        images_B1D, regions_BND, mask_BN = self.image_encoder.images_and_regions(features_BNF, lengths_B)
        captions = self._encode_captions(tokens_BL, token_lengths_B, components)
        numbers_T, true_BX = components.triple_numbers_T, components.true_triples_CX
        return UnifiedOutput(images_B1D, regions_BND, mask_BN, *captions, numbers_T, true_BX)

    def _encode_captions(
        self, tokens_CL: Tensor, lengths_C: Tensor, components: Components
    ) -> tuple[Tensor, Tensor, Tensor, ComponentVectors, ComponentVectors, ComponentVectors]:
        """Sentences, composed components, which captions have any; objects, pairs and triples."""
        sentences_CD, objects_OVD, pairs_AVD, triples_TVD = self.text_encoder(
            tokens_CL,
            lengths_C,
            _before_negatives(components.objects_O, components.object_negatives_ON),
            _before_negatives(components.pairs_A2, components.pair_negatives_AN2),
            _before_negatives(components.triples_TL, components.triple_negatives_TNL),
        )
        kinds = (
            ComponentVectors(objects_OVD, components.object_owner_O),
            ComponentVectors(pairs_AVD, components.pair_owner_A),
            ComponentVectors(triples_TVD, components.triple_owner_T),
        )
        composed_CD, has_C = compose(len(lengths_C), [kind.own for kind in kinds], [kind.owners_M for kind in kinds])
        return sentences_CD, composed_CD, has_C, *kinds


def _before_negatives(own: Tensor, negatives: Tensor | None) -> Tensor:
    """Components (M, ...) and their negatives (M, N, ...) in one tensor (M, 1 + N, ...)."""
    own = own.unsqueeze(1)
    return own if negatives is None else torch.cat([own, negatives], dim=1)
