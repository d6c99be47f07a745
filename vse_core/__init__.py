"""Visual-semantic embedding models and their mathematics: tensors in, tensors out.

Shape letters used throughout: B images (or image-caption pairs) of a batch, C captions, K views of an image,
N elements of a set (regions, grid cells, words), L tokens of a caption, D embedding, F feature width.
"""
