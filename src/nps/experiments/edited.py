"""Save a trained model with lasting edits: a model folder that is evaluated as any other.

Rules that are disabled are switched off; factors and additions go into the output layers of the
rules, so that nothing besides the weights has to be known to use the model. `edits.json` says what
was changed, in which model, and when.
"""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nps.errors import UserError
from nps.experiments.edit_record import FILE, Record, Source
from nps.experiments.export import card_of
from nps.experiments.loaded import LoadedRun
from nps.experiments.rule_names import rename
from nps.files import os_errors_in_one_line, whole_folder
from nps.inspect.counterfactual import in_words
from nps.inspect.edits import Edits
from nps.inspect.intervene import biases, factors, require_rules
from nps.inspect.workbench import Workbench
from nps.reading import exists, read_bytes
from nps.rules import ConvRules, MLPRules, RuleSet
from nps.training import model_folder
from nps.training.config import SCHEMA
from nps.training.model_folder import is_model_folder, read_card
from nps.training.run import find_checkpoint
from nps.version import __version__

__all__ = ["bake", "edited_model", "rename", "save_edited"]


def save_edited(run: LoadedRun, edits: Edits, out: Path | str) -> Path:
    """Write a run's model with the lasting edits in it, as a new model folder.

    `nps eval`, `nps inspect` and `nps view` read it like the run. What happens at one step of one
    episode (`forced`, `placed`, `acted`) is no part of a model and is left out.

    Args:
        run: as `nps.load` returns it.
        edits: at least one of them lasting.
        out: the folder to write, which must not exist.
    """
    out, lasting = Path(out), edits.lasting
    if not lasting:
        raise UserError("edits: none of them changes the model itself: nothing to save")
    if exists(out):
        raise UserError(f"{out}: exists already, expected a new folder")
    model = edited_model(run, lasting)
    saved = {"schema": SCHEMA, **run._run.read()}
    card = card_of_edited(run, lasting)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    source: Source = {
        "folder": run.folder.name,
        "id": saved.get("id"),
        "which": run.which,
        "experiment": run.experiment,
        "preset": run.preset,
        "seed": run.seed,
        "step": run.step,
    }
    document: Record = {
        "schema": SCHEMA,
        "edits": lasting.to_json(),
        "of": source,
        "when": now,
        "nps": __version__,
    }
    more = _files_beside(run) | {FILE: (json.dumps(document, indent=2) + "\n").encode()}
    with os_errors_in_one_line(f"cannot write {out}"), whole_folder(out) as folder:
        model_folder.write(folder, saved, run._run.provenance(), card, model.state_dict(), more)
    return out


def card_of_edited(run: LoadedRun, lasting: Edits) -> model_folder.Card:
    """The card of the run, without its test: the edited model was not tested."""
    card = card_of(*find_checkpoint(run.folder))
    card = {**card, "which": run.which, "step": run.step, "files": {}}
    edited = f"Edited by hand: {in_words(lasting, run.workbench.rule_names)}."
    note = " ".join(filter(None, [card.get("note"), edited]))
    return {**card, "test": {}, "verdict": "", "numbers": [], "note": note}


def edited_model(run: LoadedRun, edits: Edits) -> nn.Module:
    """A copy of the run's model with the lasting edits in its weights."""
    bench = run.workbench
    layer = bench.layer
    if layer is None:
        raise UserError(f"{run.folder}: this model has no rules to edit")
    where = next(name for name, module in run.model.named_modules() if module is layer)
    model = copy.deepcopy(run.model)
    bake(model.get_submodule(where).rules, edits, bench)  # type: ignore[arg-type]
    return model


@torch.no_grad()
def bake(rules: RuleSet, edits: Edits, bench: Workbench) -> None:
    """Write lasting edits into a rule set.

    A factor on a rule's output is one on its last layer; what is added is added to that layer's
    bias. Frozen rules stay frozen, at the new values.
    """
    require_rules(edits, len(rules))
    directions = {edit.feature: bench.layer_direction(edit.feature) for edit in edits.added}
    factor, bias = factors(rules, edits), biases(rules, edits, directions)
    rules.switch_off(*edits.disabled)
    if not (edits.scaled or edits.added):
        return
    if not _has_output_layer(rules):
        raise UserError(f"edits: {type(rules).__name__} has no output layer to write them into")
    if bias.shape[-1] > rules.slot_dim:  # of maps: an addition per channel, the same in each cell
        bias = _per_channel(bias.unflatten(-1, (rules.slot_dim, -1)))
    weight_out, bias_out = rules.get_parameter("weight_out"), rules.get_parameter("bias_out")
    rules._settle()
    for i in range(len(rules)):
        if factor[i] != 1.0:
            weight_out[i] *= float(factor[i])
            bias_out[i] *= float(factor[i])
        bias_out[i] += bias[i].to(bias_out)
    rules._reset_masks()


def _per_channel(bias: torch.Tensor) -> torch.Tensor:
    if not torch.allclose(bias, bias[..., :1].expand_as(bias), atol=1e-6):
        raise UserError(
            "edits: added: this feature is not the same in each cell of a map: it cannot be saved"
        )
    return bias[..., 0]


def _has_output_layer(rules: RuleSet) -> bool:
    """Whether outputs are those of the stock rules, linear in `weight_out`."""
    stock = (MLPRules, ConvRules)
    return any(isinstance(rules, k) and type(rules).outputs is k.outputs for k in stock)


def _files_beside(run: LoadedRun) -> dict[str, bytes]:
    """The other files that belong to a model folder, such as its data."""
    if not is_model_folder(run.folder):
        return {}
    files: dict[str, Any] = {**read_card(run.folder)["files"]}
    names = files.keys() - {model_folder.MODEL, FILE}
    return {name: read_bytes(run.folder / name, most=files[name]["bytes"]) for name in names}
