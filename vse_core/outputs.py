"""What models give to their losses where it is more than images and texts.

b pairs of an image and a caption of this process, K views, N regions, M components of one kind, V a component and its
negatives, D dimensions.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class AdversarialOutput:
    """What the loss of VSE-C needs of this process's pairs.

    Attributes:
        images_bKD: (b, K, D) unit vectors of the images.
        texts_bD: (b, D) unit vectors of their captions.
        hardest_bD: (b, D) unit vectors of each image's hardest adversarial caption; None where there are none.
    """

    images_bKD: Tensor
    texts_bD: Tensor
    hardest_bD: Tensor | None


@dataclass(frozen=True, slots=True)
class ComponentVectors:
    """Embeddings of M components of one kind, with their negatives.

    Attributes:
        vectors_MVD: (M, V, D) unit vectors; the component itself comes first.
        owners_M: (M,) rows of their captions.
    """

    vectors_MVD: Tensor
    owners_M: Tensor

    def __len__(self) -> int:
        return len(self.owners_M)

    @property
    def own(self) -> Tensor:
        """The components' own vectors (M, D)."""
        return self.vectors_MVD[:, 0]


@dataclass(frozen=True, slots=True)
class UnifiedOutput:
    """All that the loss of UniVSE needs of this process's b pairs of an image and a caption.

    Attributes:
        images_bKD: (b, 1, D) unit vectors of the images.
        regions_bND: (b, N, D) unit vectors of their regions, zero where there is none.
        region_mask_bN: (b, N) true where there is a region.
        sentences_bD: (b, D) unit vectors of the captions as sentences, u_sent.
        composed_bD: (b, D) unit vectors of the captions' components taken together, u_comp, zero where there are none.
        has_components_b: (b,) true where a caption has components.
        objects: nouns.
        pairs: adjectives with their nouns.
        triples: subjects, relations and objects.
    """

    images_bKD: Tensor
    regions_bND: Tensor
    region_mask_bN: Tensor
    sentences_bD: Tensor
    composed_bD: Tensor
    has_components_b: Tensor
    objects: ComponentVectors
    pairs: ComponentVectors
    triples: ComponentVectors
