"""Sources of data: one file or folder per world, and readers of the user's own data."""
