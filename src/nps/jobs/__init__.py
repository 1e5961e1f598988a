"""Many trainings at once: as processes of this machine or on a cluster, and grids of them."""
