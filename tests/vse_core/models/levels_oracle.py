"""HGR written out in plain Python, one video, caption, node and frame at a time."""

import math

import torch

from vse_core.models.hierarchical import HierarchicalModel, RoleGraphs

Vector = list[float]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: Vector, b: Vector) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def linear(layer: torch.nn.Linear, x: Vector) -> Vector:
    bias = layer.bias.tolist() if layer.bias is not None else [0.0] * layer.out_features
    return [dot(row, x) + b for row, b in zip(layer.weight.tolist(), bias, strict=True)]


def softmax(scores: Vector) -> Vector:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def layer_norm(layer: torch.nn.LayerNorm, x: Vector) -> Vector:
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    return [
        (value - mean) / math.sqrt(variance + layer.eps) * weight + bias
        for value, weight, bias in zip(x, layer.weight.tolist(), layer.bias.tolist(), strict=True)
    ]


def pooled(pooling: torch.nn.Module, vectors: list[Vector]) -> Vector:
    """An aggregator, which has tests of its own, on one set."""
    found = pooling(torch.tensor([vectors], dtype=torch.float64), torch.tensor([len(vectors)]))[0]
    return found.tolist()


def video_levels(model: HierarchicalModel, frames: list[Vector]) -> tuple[Vector, list[Vector], list[Vector]]:
    encoder = model.image_encoder
    event = pooled(encoder.pooling, [linear(encoder.events, frame) for frame in frames])
    return event, [linear(encoder.actions, x) for x in frames], [linear(encoder.entities, x) for x in frames]


def text_levels(
    model: HierarchicalModel, tokens: torch.Tensor, length: int, graphs: RoleGraphs, caption: int
) -> tuple[Vector, list[Vector], list[Vector]]:
    """The event, and the actions and entities that there are."""
    encoder = model.text_encoder
    own = tokens[caption, :length].unsqueeze(0)
    hidden = encoder.words.rnn(encoder.words.embed(own))[0][0]
    width = hidden.shape[1] // 2
    states = ((hidden[:, :width] + hidden[:, width:]) / 2).tolist()
    nodes = {"root": pooled(encoder.words.pooling, states)}
    for kind, phrases in (("a", graphs.actions_CAL), ("e", graphs.entities_CEL)):
        for place, words in enumerate(phrases[caption].tolist()):
            chosen = [states[position] for position, is_word in enumerate(words) if is_word]
            if chosen:
                role = encoder.roles.weight[0 if kind == "a" else int(graphs.roles_CE[caption, place])].tolist()
                highest = [max(values) for values in zip(*chosen, strict=True)]
                nodes[f"{kind}{place}"] = [value * r for value, r in zip(highest, role, strict=True)]
    reached = {name: reaching(name, nodes, graphs.linked_CAE[caption]) for name in nodes}
    for layer in encoder.layers:
        nodes = {name: exchanged(layer, name, nodes, reached[name]) for name in nodes}
    return (
        nodes["root"],
        [node for name, node in nodes.items() if name[0] == "a"],
        [node for name, node in nodes.items() if name[0] == "e"],
    )


def reaching(name: str, nodes: dict[str, Vector], linked: torch.Tensor) -> list[str]:
    if name == "root":
        return []
    place = int(name[1:])
    if name[0] == "a":
        return ["root", *(n for n in nodes if n[0] == "e" and bool(linked[place, int(n[1:])]))]
    return [n for n in nodes if n[0] == "a" and bool(linked[int(n[1:]), place])]


def exchanged(layer: torch.nn.Module, name: str, nodes: dict[str, Vector], sources: list[str]) -> Vector:
    own = nodes[name]
    if sources:
        query = linear(layer.query, own)
        keys = [linear(layer.key, nodes[source]) for source in sources]
        weights = softmax([dot(query, key) / math.sqrt(len(key)) for key in keys])
        mixed = [sum(w * nodes[s][d] for w, s in zip(weights, sources, strict=True)) for d in range(len(own))]
        own = [a + b for a, b in zip(own, linear(layer.value, mixed), strict=True)]
    return layer_norm(layer.norm, own)


def phrases_in_frames(frames: list[Vector], phrases: list[Vector]) -> float:
    """The average of frames that each phrase attends to, made and compared with it; the mean over the phrases."""
    total = 0.0
    for phrase in phrases:
        positive = [max(0.0, cosine(frame, phrase)) for frame in frames]
        length = math.sqrt(dot(positive, positive)) or 1.0
        weights = softmax([4 * value / length for value in positive])
        seen = [sum(w * frame[d] for w, frame in zip(weights, frames, strict=True)) for d in range(len(phrase))]
        total += cosine(seen, phrase)
    return total / max(len(phrases), 1)


def all_levels(model: HierarchicalModel, inputs: list) -> list[list[tuple[float, float, float]]]:
    """For every video and caption the similarities by event, actions and entities."""
    features, frames, tokens, lengths, graphs = inputs
    videos = [video_levels(model, rows[:n].tolist()) for rows, n in zip(features, frames.tolist(), strict=True)]
    texts = [text_levels(model, tokens, int(n), graphs, caption) for caption, n in enumerate(lengths)]
    return [
        [
            (cosine(event, root), phrases_in_frames(of_actions, actions), phrases_in_frames(of_entities, entities))
            for root, actions, entities in texts
        ]
        for event, of_actions, of_entities in videos
    ]
