"""Galleries, their FAISS indices, searches and contact sheets."""
