"""One gradient step of the learner, jitted, donated and sharded."""

from __future__ import annotations

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
from learner.critic import Values, make_critic, read_prompts, value_loss
from learner.demonstrations import Steps
from learner.packing import Batch, blank
from learner.retrace import off_policy_returns, outcome_labels
from learner.state import ImitationReport, LearnerState, Replayed, StepReport
from learner.update_config import UpdateConfig


class Updates(NamedTuple):
    """The learner's jitted functions; the first argument's state is donated."""

    imitate: Callable[[LearnerState, Steps], tuple[LearnerState, ImitationReport]]
    improve: Callable[..., tuple[LearnerState, StepReport]]  # (state, batch, step_size)
    improve_critic: Callable[[LearnerState, Batch], tuple[LearnerState, dict[str, Array]]]
    measure: Callable[[LearnerState, Batch], tuple[LearnerState, StepReport]]
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

    def replay(
        params: Any, state: LearnerState, batch: Batch, v_t: Array, v_tp1: Array
    ) -> Replayed:
        """Computes anew what the replayed steps are under today's policy and values."""
        log_probs, entropy, outside = stats(params, state, batch, sampling, automaton)
        fixed = jax.lax.stop_gradient(log_probs)
        mu = jnp.where(batch.expert[:, None] > 0, fixed, batch.behaviour_log_probs)
        rho = jnp.exp(jnp.clip((fixed - mu).sum(-1), -20.0, 20.0)) * batch.mask
        discount = config.gamma * batch.discount
        returns = off_policy_returns(
            batch.reward, discount, rho, v_t, v_tp1, lambda_=config.lambda_, rho_bar=config.rho_bar
        )
        td = batch.reward + discount * v_tp1 - v_t
        targets = jnp.clip(returns.targets, 0.0, 1.0)
        return Replayed(log_probs, mu, entropy, outside, rho, td, returns, targets)

    def report(
        replayed: Replayed, values: Values, batch: Batch, scalars: dict[str, Array]
    ) -> StepReport:
        tokens = jnp.maximum((batch.action_ids > 0).sum(-1), 1)
        return StepReport(
            td=replayed.td,
            rho=jnp.minimum(replayed.rho, config.rho_bar),
            entropy=replayed.entropy.sum(-1) / tokens,
            targets=replayed.targets,
            instruction_value=jax.nn.sigmoid(values.instruction),
            scalars=scalars,
        )

    def improve(
        state: LearnerState, batch: Batch, step_size: Array
    ) -> tuple[LearnerState, StepReport]:
        """A step of the policy and of the critic on the same batch (A-RIDE).

        An expert's actions count as if the policy had taken them: their ratio is 1. `step_size` is
        a share of the policy's learning rate.
        """
        batch = read(policy(state.params, state), batch)
        values = critic.apply(state.critic_params, batch)
        v_t, v_tp1 = _now_and_next(values)

        def loss(params: Any) -> tuple[Array, tuple[Any, ...]]:
            replayed = replay(params, state, batch, v_t, v_tp1)
            found = advantages(
                config.loss.advantage,
                batch,
                replayed.returns.advantages,
                replayed.rho,
                v_t,
                v_tp1,
                gamma=config.gamma,
                lambda_=config.lambda_,
                penalties=losses.penalties(batch, config.loss),
            )
            weights = losses.action_weights(found, batch, config.loss)
            result = losses.policy_loss(
                replayed.log_probs, replayed.mu, replayed.entropy, weights, batch, config.loss
            )
            imitated = jnp.where((weights > 0) & (batch.mask > 0), batch.touched, -1)
            grounding = ground(params, state, batch, imitated)
            value = result.loss + config.grounding * grounding
            return value, (result, replayed, grounding)

        (_, (result, replayed, grounding)), grads = jax.value_and_grad(loss, has_aux=True)(
            state.params
        )
        params, opt_state, told = optimizer.step(
            policy_tx, grads, state.params, state.opt_state, step_size
        )
        if config.loss.advantage == "filtered":  # of successes alone values would learn but 1
            next_state = state
        else:
            next_state, _ = learn_values(state, batch, mixed(batch, replayed.targets))
        scalars = {
            "loss/policy": result.loss,
            "loss/grounding": grounding,
            "policy/entropy_nats": result.entropy,
            "policy/log_prob": result.log_prob,
            "policy/outside_tokens": (replayed.outside * batch.mask[:, None]).sum(),
            "policy/positive_share": result.positive,
            "policy/negative_share": result.negative,
            **diagnostics.off_policy(replayed.rho, config.rho_bar, batch),
            **diagnostics.values(v_t, values.instruction, replayed.returns.advantages, batch),
            **told,
        }
        return next_state._replace(
            params=params, opt_state=opt_state, updates=state.updates + 1
        ), report(replayed, values, batch, scalars)

    def measure(state: LearnerState, batch: Batch) -> tuple[LearnerState, StepReport]:
        """What `improve` would report of a batch, without a step."""
        batch = read(policy(state.params, state), batch)
        values = critic.apply(state.critic_params, batch)
        replayed = replay(state.params, state, batch, *_now_and_next(values))
        return state, report(replayed, values, batch, {})

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
        measure=jit(measure, rows),
        init=jax.jit(init, out_shardings=state_sharding),
        restart_policy_optimizer=lambda state: restart(state)[0],
    )


def _now_and_next(values: Values) -> tuple[Array, Array]:
    """Values of the states acted in and of those that followed, [N]; a discount cuts the wrap."""
    v_t = values.pessimistic()
    return v_t, jnp.concatenate([v_t[1:], v_t[:1]])
