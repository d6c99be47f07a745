"""Evaluation of trained models: recalls, protocols, comparisons, ensembles and tables of single queries."""
