"""See what a model has learned: rules in words, figures, reports."""
