"""HGR and HGR-infinity: videos and captions encoded as event, actions and entities, of frames and role graphs.

B videos, N frames, F feature width; C captions, L tokens, A actions, E entities, M = 1 + A + E nodes; D dimensions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vse_core.encoders.image import Center
from vse_core.encoders.text import BiGRUEncoder
from vse_core.losses.hierarchical import TextLevels, VideoLevels
from vse_core.models.model import Model
from vse_core.outputs import Rows
from vse_core.pooling.masks import check_lengths, valid_mask
from vse_core.products import Linear
from vse_core.similarity import unit_length
from vse_core.static_shapes import has_static_shapes

ROLES = 16
"""Roles that an action or an entity may have; action is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGraphs(Rows):
    """Semantic roles of C captions: their actions, their entities, and the entities' roles in the actions.

    Bools tell which tokens of its caption an action or entity consists of (one without does not exist), and whether an
    entity has a part in an action; roles are below `ROLES`.
    """

    actions_CAL: Tensor
    entities_CEL: Tensor
    roles_CE: Tensor
    linked_CAE: Tensor

    def masks(self) -> tuple[Tensor, Tensor]:
        """Return the masks of actions (C, A) and of entities (C, E) that exist."""
        return self.actions_CAL.any(dim=-1), self.entities_CEL.any(dim=-1)

    def edges(self) -> Tensor:
        """Return edges (C, M, M), receivers first, of the M = 1 + A + E nodes: the caption, actions, entities.

        The caption reaches its actions and nothing reaches the caption; actions and their entities reach each other.
        """
        actions_CA, entities_CE = self.masks()
        captions, actions = actions_CA.shape
        nodes = 1 + actions + entities_CE.shape[1]
        edges_CMM = self.linked_CAE.new_zeros(captions, nodes, nodes)
        linked_CAE = self.linked_CAE & actions_CA.unsqueeze(2) & entities_CE.unsqueeze(1)
        edges_CMM[:, 1 : 1 + actions, 0] = actions_CA
        edges_CMM[:, 1 : 1 + actions, 1 + actions :] = linked_CAE
        edges_CMM[:, 1 + actions :, 1 : 1 + actions] = linked_CAE.transpose(1, 2)
        return edges_CMM


class HierarchicalModel(Model):
    """Hierarchical graph reasoning (Chen et al., CVPR 2020), in its infinity form if GPO makes the events.

    A video and a caption are compared on three levels: the event, by one vector each; actions and entities, each
    phrase of the caption with the frames it attends to. The similarity is the mean, not an inner product of two
    vectors, so that it has no search index. Captions come with role graphs, by semantic role labelling: HGR's release
    holds those of its data sets.

    Differs from the released code: phrases are compared on unit vectors that are divided by their length plus 1e-8,
    where it bounds the length from below.
    """

    def forward(
        self, features_BNF: Tensor, lengths_B: Tensor, tokens_BL: Tensor, token_lengths_B: Tensor, graphs: RoleGraphs
    ) -> tuple[VideoLevels, TextLevels]:
        """Encode a batch of pairs, in one call as DistributedDataParallel requires."""
        return self.encode_images(features_BNF, lengths_B), self.encode_texts(tokens_BL, token_lengths_B, graphs)


class FrameLevelEncoder(nn.Module):
    """Project every frame once for each level; the event level is pooled (HGR, section 3.2).

    HGR pools by ``attention``; with GPO for the aggregator it is HGR-infinity (VSE-infinity, section 5.1.2). Actions
    and entities keep all frames: which of them count depends on the phrase
    (:func:`~vse_core.losses.hierarchical.phrase_similarities`). ``dropout`` is the share of the projected values that
    training leaves out (0.2 in the released code), and with ``center`` the mean of the training features is subtracted.
    """

    def __init__(
        self, feature_dim: int, embed_dim: int, pooling: nn.Module, dropout: float = 0.2, center: bool = False
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.center = Center(feature_dim, center)
        self.events, self.actions, self.entities = (Linear(feature_dim, embed_dim) for _ in range(3))
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)

    def forward(self, features_BNF: Tensor, lengths_B: Tensor) -> VideoLevels:
        """Encode (B, N, F) frames with lengths (B,)."""
        check_lengths(features_BNF, lengths_B)
        mask_BN = valid_mask(features_BNF, lengths_B)
        frames_BNF = self.center(features_BNF, mask_BN).to(self.events.weight.dtype)
        events, actions, entities = (
            self.dropout(level(frames_BNF)) for level in (self.events, self.actions, self.entities)
        )
        return VideoLevels(unit_length(self.pooling(events, lengths_B)), actions, entities, mask_BN)


class RoleGraphEncoder(nn.Module):
    """Words through a bidirectional GRU; phrases of them are nodes of a graph, which learn of each other (HGR, 3.1).

    The complete caption is the root, pooled of its words: by attention in HGR, by GPO in HGR-infinity (VSE-infinity,
    section 5.1.2). An action or an entity is the maximum of its words' states, in each dimension, times a vector that
    is learned for its role. Layers of attention over the edges follow.

    Training leaves out a share ``dropout`` of the word vectors' values, and ``graph_dropout`` of what comes over the
    edges. The defaults and the orthogonal start of the GRU are those of the released code.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embed_dim: int,
        pooling: nn.Module,
        word_dim: int = 300,
        dropout: float = 0.2,
        graph_dropout: float = 0.5,
        layers: int = 1,
    ) -> None:
        super().__init__()
        self.words = BiGRUEncoder(vocabulary_size, embed_dim, pooling, word_dim, dropout=dropout)
        nn.init.uniform_(self.words.embed.weight, -(word_dim**-0.5), word_dim**-0.5)
        for name, parameter in self.words.rnn.named_parameters():
            (nn.init.orthogonal_ if name.startswith("weight") else nn.init.zeros_)(parameter)
        self.roles = nn.Embedding(ROLES, embed_dim)
        self.layers = nn.ModuleList([GraphAttention(embed_dim, graph_dropout) for _ in range(layers)])

    @property
    def pooling(self) -> nn.Module:
        """The aggregator of the words."""
        return self.words.pooling

    def set_word_vectors(self, words_W: Tensor, vectors_WE: Tensor) -> None:
        """Begin with given vectors for some of the words; see :meth:`BiGRUEncoder.set_word_vectors`."""
        self.words.set_word_vectors(words_W, vectors_WE)

    def forward(self, tokens_CL: Tensor, lengths_C: Tensor, graphs: RoleGraphs) -> TextLevels:
        """Encode word ids and graphs; ValueError, on a CPU, if a caption is empty, or a graph names words beyond it."""
        _check_words(graphs, lengths_C)
        states_CLD = self.words.states(tokens_CL, lengths_C)
        root_C1D = self.words.pooling(states_CLD, lengths_C).unsqueeze(1)
        # All actions have the one role that is theirs.
        actions_CAD = _phrases(states_CLD, graphs.actions_CAL) * self.roles.weight[0]
        entities_CED = _phrases(states_CLD, graphs.entities_CEL) * self.roles(graphs.roles_CE)
        nodes_CMD, edges_CMM = torch.cat([root_C1D, actions_CAD, entities_CED], dim=1), graphs.edges()
        for layer in self.layers:
            nodes_CMD = layer(nodes_CMD, edges_CMM)
        events_CD, actions_CAD, entities_CED = unit_length(nodes_CMD).split(
            [1, actions_CAD.shape[1], entities_CED.shape[1]], dim=1
        )
        actions_CA, entities_CE = graphs.masks()
        return TextLevels(events_CD.squeeze(1), actions_CAD, actions_CA, entities_CED, entities_CE)


class GraphAttention(nn.Module):
    """A node learns of the nodes that reach it, each as much as it attends to it (HGR, section 3.1).

        a_ij = softmax_j( <Q g_i, K g_j> / sqrt(D / 2) ),   g_i <- LayerNorm( g_i + W sum_j a_ij g_j )

    with j over the nodes that reach i; if none does, the sum is zero. Training leaves out a share ``dropout`` of it.
    """

    def __init__(self, dim: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.query, self.key = (nn.Linear(dim, dim // 2) for _ in range(2))
        self.value = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, nodes_CMD: Tensor, edges_CMM: Tensor) -> Tensor:
        """Nodes (C, M, D) with edges (C, M, M), receivers first, after one exchange: (C, M, D)."""
        queries, keys = self.query(nodes_CMD), self.key(nodes_CMD)
        scores_CMM = (queries @ keys.transpose(1, 2)) / keys.shape[-1] ** 0.5
        # A softmax over nothing would be NaN, and its gradient too: a node that nothing reaches looks at all, and
        # forgets it.
        seen_CMM = edges_CMM | ~edges_CMM.any(dim=-1, keepdim=True)
        attention_CMM = scores_CMM.masked_fill(~seen_CMM, -torch.inf).softmax(dim=-1).masked_fill(~edges_CMM, 0.0)
        learned_CMD = self.value(attention_CMM @ nodes_CMD)
        result: Tensor = self.norm(nodes_CMD + self.dropout(learned_CMD))
        return result


def _phrases(states_CLD: Tensor, words_CPL: Tensor) -> Tensor:
    """The maximum (C, P, D) over each phrase's words; zero if it has none."""
    spread_CPLD = states_CLD.unsqueeze(1).masked_fill(~words_CPL.unsqueeze(-1), -torch.inf)
    return spread_CPLD.amax(dim=2).masked_fill(~words_CPL.any(dim=-1, keepdim=True), 0.0)


def _check_words(graphs: RoleGraphs, lengths_C: Tensor) -> None:
    if has_static_shapes(lengths_C):
        return  # the host would wait
    for name, words_CPL in (("action", graphs.actions_CAL), ("entity", graphs.entities_CEL)):
        beyond_CL = torch.arange(words_CPL.shape[-1], device=lengths_C.device) >= lengths_C.unsqueeze(1)
        outside_C = (words_CPL.any(dim=1) & beyond_CL).any(dim=1)
        if bool(outside_C.any()):
            caption = int(outside_C.int().argmax())
            raise ValueError(f"an {name} of caption {caption} of the batch has words beyond its end")
