"""See what was learned: rules in words, figures, reports."""
