"""One gradient step of the learner, jitted, donated and sharded."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from common.models import autoui, lora
from common.models.automaton import Automaton
from common.models.distribution import SamplingConfig
from learner import diagnostics, losses, optimizer, sharding
from learner.advantages import advantages
from learner.critic import CriticConfig, make_critic, read_prompts, value_loss
from learner.demonstrations import Steps
from learner.packing import Batch, blank
from learner.retrace import off_policy_returns, outcome_labels
from learner.state import ImitationReport, LearnerState, StepReport


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


class Updates(NamedTuple):
    """The learner's jitted functions; the first argument's state is donated."""

    imitate: Callable[[LearnerState, Steps], tuple[LearnerState, ImitationReport]]
    improve: Callable[..., tuple[LearnerState, StepReport]]  # (state, batch, step_size)
    improve_critic: Callable[[LearnerState, Batch], tuple[LearnerState, dict[str, Array]]]
    init: Callable[..., LearnerState]  # (key, params=None): of the whole policy, None for fresh
    restart_policy_optimizer: Callable[[LearnerState], LearnerState]


def make_updates(
    model: autoui.AutoUIConfig,
    config: UpdateConfig,
    sampling: SamplingConfig,
    mesh: jax.sharding.Mesh,
    automaton: Automaton | None = None,
    text_width: int = 0,
) -> Updates:
    """Builds the learner's functions for one model on one mesh.

    Args:
      model: Of the policy.
      config: Of the update.
      sampling: The sampler's; the learner recomputes log-probabilities under the same. Imitation
        keeps the temperature alone, so that no token of an expert is outside.
      mesh: Axes data, fsdp and tensor; the batch is split over the first two.
      automaton: The sampler's, if it decodes by the grammar.
      text_width: D of `Batch.texts`; 0 unless the critic reads a frozen encoder's texts.
    """
    critic = make_critic(config.critic, model.vocab_size)
    policy_tx, imitation_tx = optimizer.for_policy(config), optimizer.for_imitation(config)
    critic_tx = optimizer.for_critic(config)

    def init(key: Array, params: Any = None) -> LearnerState:
        policy_key, critic_key = jax.random.split(key)
        if params is None:
            params = autoui.init(model, policy_key)
        trained, frozen = lora.split(params, config.lora, jax.random.fold_in(key, 2))
        width = model.d_model if config.critic.kind == "t5" else text_width
        critic_params = critic.init(critic_key, blank(model, width))
        return LearnerState(
            trained,
            policy_tx.init(trained),
            critic_params,
            critic_tx.init(critic_params),
            jnp.zeros((), jnp.int32),
            frozen,
        )

    def policy(params: Any, state: LearnerState) -> Any:
        """The parameters that the model takes, of those that are trained and the rest."""
        return lora.union(state.frozen, lora.scaled(params, config.lora))

    def read(params: Any, batch: Batch) -> Batch:
        """Lets the policy read the prompts for a critic that has no other reader."""
        if config.critic.kind != "t5":
            return batch
        with sharding.activations(mesh):
            return batch._replace(texts=read_prompts(params, model, batch.prompt_ids))

    def stats(
        params: Any, state: LearnerState, batch: Batch | Steps, *how: Any
    ) -> autoui.TokenStats:
        params = policy(params, state)
        with sharding.activations(mesh):
            return autoui.token_stats(
                params, model, batch.prompt_ids, batch.features, batch.action_ids, *how
            )

    def ground(params: Any, state: LearnerState, batch: Batch | Steps, touched: Array) -> Array:
        """The loss of not looking at what is tapped; 0 where no image token is a place."""
        if model.image_grid is None or config.grounding == 0:
            return jnp.zeros(())
        params = policy(params, state)
        with sharding.activations(mesh):
            looks = autoui.attention(params, model, batch.prompt_ids, batch.features)
        return losses.grounding(looks, batch.prompt_ids, touched)

    def imitate(state: LearnerState, steps: Steps) -> tuple[LearnerState, ImitationReport]:
        """Maximum likelihood of the expert's actions (the supervised warm start).

        Where image tokens are patches of the screen, those that are tapped are looked at.
        """

        def loss(params: Any) -> tuple[Array, tuple[Array, dict[str, Array]]]:
            how = SamplingConfig(sampling.temperature)
            log_probs = stats(params, state, steps, how).log_probs
            value = -log_probs.sum() / jnp.maximum((steps.action_ids > 0).sum(), 1)
            scalars = {"loss/imitation": value}
            scalars["loss/grounding"] = ground(params, state, steps, steps.touched)
            return value + config.grounding * scalars["loss/grounding"], (log_probs, scalars)

        (_, (log_probs, scalars)), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        params, opt_state, told = optimizer.step(imitation_tx, grads, state.params, state.opt_state)
        scalars |= told
        return state._replace(
            params=params, opt_state=opt_state, updates=state.updates + 1
        ), ImitationReport(-log_probs.sum(-1), scalars)

    def mixed(batch: Batch, corrected: Array) -> Array:
        """What values are to become: the outcome's label, and a share of the corrected target."""
        label = outcome_labels(batch.reward, config.gamma * batch.discount)
        return (1 - config.kappa) * label + config.kappa * corrected

    def learn_values(
        state: LearnerState, batch: Batch, targets: Array
    ) -> tuple[LearnerState, Array]:
        def loss(critic_params: Any) -> Array:
            return value_loss(critic.apply(critic_params, batch), batch, targets, config.smoothing)

        value, grads = jax.value_and_grad(loss)(state.critic_params)
        params, opt_state, _ = optimizer.step(
            critic_tx, grads, state.critic_params, state.critic_opt_state
        )
        return state._replace(critic_params=params, critic_opt_state=opt_state), value

    def improve_critic(state: LearnerState, batch: Batch) -> tuple[LearnerState, dict[str, Array]]:
        """A step of the critic alone, on the targets that the replay remembers."""
        batch = read(policy(state.params, state), batch)
        state, value = learn_values(state, batch, mixed(batch, batch.targets))
        return state, {"loss/critic": value}

    def improve(
        state: LearnerState, batch: Batch, step_size: Array
    ) -> tuple[LearnerState, StepReport]:
        """A step of the policy and of the critic on the same batch (A-RIDE).

        An expert's actions count as if the policy had taken them: their ratio is 1. `step_size` is
        a share of the policy's learning rate.
        """
        batch = read(policy(state.params, state), batch)
        values = critic.apply(state.critic_params, batch)
        v_t = values.pessimistic()
        v_tp1 = jnp.concatenate([v_t[1:], v_t[:1]])  # a discount of 0 cuts the wrap

        def loss(params: Any) -> tuple[Array, tuple[Any, ...]]:
            log_probs, entropy, outside = stats(params, state, batch, sampling, automaton)
            fixed = jax.lax.stop_gradient(log_probs)
            mu = jnp.where(batch.expert[:, None] > 0, fixed, batch.behaviour_log_probs)
            log_rho = (fixed - mu).sum(-1)
            rho = jnp.exp(jnp.clip(log_rho, -20.0, 20.0)) * batch.mask
            returns = off_policy_returns(
                batch.reward,
                config.gamma * batch.discount,
                rho,
                v_t,
                v_tp1,
                lambda_=config.lambda_,
                rho_bar=config.rho_bar,
            )
            found = advantages(
                config.loss.advantage,
                batch,
                returns.advantages,
                rho,
                v_t,
                v_tp1,
                gamma=config.gamma,
                lambda_=config.lambda_,
                penalties=losses.penalties(batch, config.loss),
            )
            weights = losses.action_weights(found, batch, config.loss)
            result = losses.policy_loss(log_probs, mu, entropy, weights, batch, config.loss)
            imitated = jnp.where((weights > 0) & (batch.mask > 0), batch.touched, -1)
            grounding = ground(params, state, batch, imitated)
            value = result.loss + config.grounding * grounding
            return value, (result, rho, entropy, outside, returns, grounding)

        (_, (result, rho, entropy, outside, returns, grounding)), grads = jax.value_and_grad(
            loss, has_aux=True
        )(state.params)
        params, opt_state, told = optimizer.step(
            policy_tx, grads, state.params, state.opt_state, step_size
        )
        targets = jnp.clip(returns.targets, 0.0, 1.0)
        if config.loss.advantage == "filtered":  # of successes alone values would learn but 1
            next_state = state
        else:
            next_state, _ = learn_values(state, batch, mixed(batch, targets))
        tokens = jnp.maximum((batch.action_ids > 0).sum(-1), 1)
        scalars = {
            "loss/policy": result.loss,
            "loss/grounding": grounding,
            "policy/entropy_nats": result.entropy,
            "policy/log_prob": result.log_prob,
            "policy/outside_tokens": (outside * batch.mask[:, None]).sum(),
            "policy/positive_share": result.positive,
            "policy/negative_share": result.negative,
            **diagnostics.off_policy(rho, config.rho_bar, batch),
            **diagnostics.values(v_t, values.instruction, returns.advantages, batch),
            **told,
        }
        td = batch.reward + config.gamma * batch.discount * v_tp1 - v_t
        report = StepReport(
            td=td,
            rho=jnp.minimum(rho, config.rho_bar),
            entropy=entropy.sum(-1) / tokens,
            targets=targets,
            instruction_value=jax.nn.sigmoid(values.instruction),
            scalars=scalars,
        )
        return next_state._replace(
            params=params, opt_state=opt_state, updates=state.updates + 1
        ), report

    def restart_policy_optimizer(state: LearnerState) -> tuple[LearnerState, None]:
        return state._replace(opt_state=policy_tx.init(state.params)), None

    shapes = jax.eval_shape(init, jax.random.key(0))
    state_sharding = sharding.state_sharding(shapes, model, mesh)
    rows = sharding.batch_sharding(mesh)
    whole = sharding.replicated(mesh)

    def jit(function: Callable[..., tuple[LearnerState, Any]], *inputs: Any) -> Callable[..., Any]:
        """Compiles a step that donates the state, but for what is frozen."""
        moving = state_sharding._replace(frozen=None)

        def apart(state: LearnerState, frozen: Any, *arguments: Any) -> tuple[LearnerState, Any]:
            state, report = function(state._replace(frozen=frozen), *arguments)
            return state._replace(frozen=None), report

        compiled = jax.jit(
            apart,
            donate_argnums=0,
            in_shardings=(moving, state_sharding.frozen, *inputs),
            out_shardings=(moving, whole),
        )

        @functools.wraps(function)
        def step(state: LearnerState, *arguments: Any) -> tuple[LearnerState, Any]:
            frozen = state.frozen
            state, report = compiled(state._replace(frozen=None), frozen, *arguments)
            return state._replace(frozen=frozen), report

        return step

    def with_step_size(step: Callable[..., Any]) -> Callable[..., Any]:
        return lambda state, batch, step_size=1.0: step(state, batch, np.float32(step_size))

    restart = jit(restart_policy_optimizer)
    return Updates(
        imitate=jit(imitate, rows),
        improve=with_step_size(jit(improve, rows, whole)),
        improve_critic=jit(improve_critic, rows),
        init=jax.jit(init, out_shardings=state_sharding),
        restart_policy_optimizer=lambda state: restart(state)[0],
    )
