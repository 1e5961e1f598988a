"""Train coordinate arithmetic for a few seconds, and inspect what was learned, cell by cell.

The cells are those of a notebook: open this file in VS Code, PyCharm or Jupyter (jupytext), or run
it whole:

    python examples/train_and_inspect.py
"""

# %% What can be trained, and with which settings
import nps
from nps.worlds.arithmetic import OPERATIONS

preset = nps.presets()["arithmetic-sharp"]
print(preset.about)
print(f"{preset.config.rules} rules, {preset.config.epochs} epochs")

# %% Train it shorter than the preset does; the same cell again resumes, or is done at once
run = nps.train("arithmetic-sharp", out="runs/inspect", epochs=20, restart_at=0.5, settle_from=0.5)
print(run)

# %% How did it go? Rows of the log, or one curve: epochs and values
epochs, errors = run.curve("validation/mse")
print(f"validation MSE {errors[0]:.4f} after {epochs[0]} epochs, {errors[-1]:.4f} at the end")

# %% Which rule fired on which point, reading which other? (examples, stages, slots)
trace = run.trace(n=5)
print(trace.rule[:, 0])
print(trace.context[:, 0])

# %% How often each rule serves each operation, on the whole validation set
data = run.data["validation"]
rule = run.trace(data.before, data.after).rule.amax((-2, -1))
for number, operation in enumerate(OPERATIONS):
    uses = rule[data.operation == number].bincount(minlength=run.config.rules)
    print(f"{operation:14} {uses.tolist()}")

# %% What if a rule did not exist? The model is an ordinary module
with run.model.layer.rules.disabled(0):
    print(run.trace(n=5).rule[:, 0])

# %% Later, or in another process
again = nps.load("runs/inspect")
print(f"test MSE {again.test()['mse']:.4f}")
