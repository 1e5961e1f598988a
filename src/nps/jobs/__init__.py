"""Many trainings in parallel, as local processes or on a cluster, and sweeps over grids."""
