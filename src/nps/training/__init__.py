"""The training loop that never loses work. In reading order:

task.py         what an experiment gives: data, model, loss, evaluation, pictures
data.py         where examples come from: made on the device, resident there, or streamed
batches.py      order, noise and examples of every step, as functions of (seed, step)
stack.py        the models of several seeds as one; of a single seed, an ordinary module
optimiser.py    Adam, weight decay, learning rates, the moving average of the weights
state.py        everything that changes while training, and its checkpoints
step.py         one step: loss, gradient, guard, update; captured on CUDA
session.py      the loop: prepare, step; end of an epoch: log, validate, draw, save
resume.py       the checkpoint that each seed continues from
loop.py         `train`: which seeds train together

Around them: run.py (the folder), identity.py, checkpoint.py, log.py, config.py, provenance.py,
rng.py, precision.py, distributed.py (torchrun), memory.py, signals.py, progress.py.
"""
