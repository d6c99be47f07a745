"""Registered models as folders for other programs: the Hugging Face hub, sentence-transformers and ONNX."""
