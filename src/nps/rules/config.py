"""The settings of a rule layer, in one dataclass that models and experiments pass on whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from nps.rules.check import require_choice, require_int, require_number, require_type

Query = Literal["linear", "mlp"]
ContextGradient = Literal["slot", "update"]

MIN_TEMPERATURE = 1e-6
MAX_HANDICAP = 1e6
"""At this handicap the null rule never wins a slot."""


@dataclass(frozen=True)
class RuleConfig:
    """Everything about a rule layer except the sizes of what it reads (slots, features)."""

    num_rules: int
    """N, the number of rules."""
    stages: int = 1
    """K, the number of stages."""
    rule_dim: int = 64
    """Size of a rule's embedding."""
    key_dim: int = 32
    """Size of queries and keys."""
    hidden_dim: int = 128
    """Hidden units of a rule's MLP."""
    hidden_layers: int = 1
    """Hidden layers of a rule's MLP."""
    kernel_size: int | None = None
    """Kernel size of convolutional rules, for slots that are feature maps; None for MLPs."""
    temperature: float = 1.0
    """Temperature of the softmax that gives a hard choice its gradient."""
    dropout: float = 0.0
    """Probability that a rule score is set to zero in training (paper: 0.35 on arithmetic)."""
    context_dropout: float = 0.0
    """The same for the scores of contexts."""
    query: Query = "linear"
    """Queries of rule selection: one matrix as in the paper, or a small MLP."""
    context_query: Query | None = None
    """Queries and keys of context binding; None: the same as `query`."""
    self_context: bool = True
    """Whether a slot may be its own context."""
    context_gradient: ContextGradient = "slot"
    """What the choice of a context learns from: the chosen slot, or the update in each context."""
    zero_start: bool = False
    """Whether the rules' output layers start at zero, so that at first no rule changes a slot."""
    null_handicap: float = 0.0
    """Subtracted from the null rule's bids (`ParallelNPS` only)."""
    most: int | None = None
    """How many slots may fire in a stage (`AdaptiveNPS` only); None: all."""

    def __post_init__(self) -> None:
        require_int("num_rules", self.num_rules, at_least=1)
        require_int("stages", self.stages, at_least=1)
        require_int("rule_dim", self.rule_dim, at_least=1)
        require_int("key_dim", self.key_dim, at_least=1)
        require_int("hidden_dim", self.hidden_dim, at_least=1)
        require_int("hidden_layers", self.hidden_layers, at_least=1)
        if self.kernel_size is not None:
            require_int("kernel_size", self.kernel_size, at_least=1)
            if self.hidden_layers != 1:
                raise ValueError(
                    f"hidden_layers: got {self.hidden_layers}, expected 1 with a kernel_size"
                )
        infinity = float("inf")
        require_number("temperature", self.temperature, MIN_TEMPERATURE, infinity, open_top=True)
        require_number("dropout", self.dropout, 0.0, 1.0, open_top=True)
        require_number("context_dropout", self.context_dropout, 0.0, 1.0, open_top=True)
        require_choice("query", self.query, get_args(Query))
        if self.context_query is not None:
            require_choice("context_query", self.context_query, get_args(Query))
        require_type("self_context", self.self_context, bool, "True or False")
        require_choice("context_gradient", self.context_gradient, get_args(ContextGradient))
        require_type("zero_start", self.zero_start, bool, "True or False")
        require_number("null_handicap", self.null_handicap, 0.0, MAX_HANDICAP, open_top=False)
        if self.most is not None:
            require_int("most", self.most, at_least=1)

    def keywords(self) -> dict[str, Any]:
        """The fields as keyword arguments of a layer's constructor."""
        return asdict(self)
