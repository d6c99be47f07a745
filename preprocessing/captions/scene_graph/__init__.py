"""From captions to scene graphs, by rules over dependency parses."""
