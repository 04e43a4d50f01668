"""Settings of one gradient step."""

from __future__ import annotations

import dataclasses

from common.models import lora
from learner import losses
from learner.critic import CriticConfig


@dataclasses.dataclass(frozen=True)
class UpdateConfig:
    """The A-RIDE update. Values without a source are those of this project's own runs."""

    policy_lr: float = 1e-4
    policy_warmup: int = 20  # updates
    imitation_lr: float = 8e-4
    imitation_warmup: int = 50
    grounding: float = 0.1  # of the attention to what imitated actions tap, where patches are
    critic_lr: float = 1e-3
    critic_decay: float = 1e-3  # AdamW's
    max_grad_norm: float = 1.0
    accumulate: int = 1  # gradients that are averaged for one step of the policy
    gamma: float = 1.0
    lambda_: float = 0.95
    rho_bar: float = 1.0
    kappa: float = 0.5  # share of the corrected target in the value's label, the rest Monte-Carlo
    smoothing: float = 0.02
    loss: losses.PolicyLossConfig = dataclasses.field(default_factory=losses.PolicyLossConfig)
    critic: CriticConfig = dataclasses.field(default_factory=CriticConfig)
    lora: lora.LoraConfig = dataclasses.field(default_factory=lora.LoraConfig)
