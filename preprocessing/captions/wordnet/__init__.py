"""WordNet's synsets with their hypernyms, as far as captions need them."""
