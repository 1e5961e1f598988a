"""Metrics of models, each tested against a second implementation."""
