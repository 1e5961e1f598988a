"""GPU programs in Triton, one file per operation, imported only where they can run.

Each file takes tensors whose first dimension is the seed of a stack. Sums that many programs share
are stored in parts and added in a fixed order, so that a run can be repeated and resumed bit for
bit. Arithmetic is in float32, whatever type the tensors have.
"""
