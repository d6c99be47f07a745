"""From captions to scene graphs, by rules over dependency parses."""

from preprocessing.captions.scene_graph.parse import MAX_TOKENS, ParsedCaption, extract_graph, parse_captions

__all__ = ["MAX_TOKENS", "ParsedCaption", "extract_graph", "parse_captions"]
