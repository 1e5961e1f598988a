"""Numbers that judge a model, each tested against a second implementation."""
