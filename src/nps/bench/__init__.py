"""Speed of the layers, against GNN and attention in the same run and the limits of the machine."""
