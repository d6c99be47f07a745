"""From raw texts and images to embeddings, with the encoders and the extractor that a model was trained with."""
