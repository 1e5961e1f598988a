"""Where data comes from, one file a world."""
