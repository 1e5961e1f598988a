"""How fast the layers are: against GNN and attention in the same run, and against the machine."""
