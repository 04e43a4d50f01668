"""Off-policy learning where everything is known: a small world whose actions are two tokens.

A corridor of states; two tokens make an action, and only one of the four pairs leads on. Values of
any policy and the best one's follow by dynamic programming, in float64.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from common.models.autoui import PRESETS
from learner.losses import PolicyLossConfig, action_weights, policy_loss
from learner.packing import blank
from learner.retrace import off_policy_returns

STATES, TOKENS, LENGTH, HORIZON = 4, 2, 2, 12
GAMMA = 0.9
ACTIONS = TOKENS**LENGTH
RIGHT = np.array([1, 2, 0, 3])  # the action of each state that leads on


def step(state, action, rng):
    """Leads on, or back to the start; the last step on gives 1 and ends. Vectorised."""
    on = (action == RIGHT[state]) & (rng.random(len(state)) < 0.9)
    done = on & (state == STATES - 1)
    after = np.where(on, np.minimum(state + 1, STATES - 1), np.maximum(state - 1, 0))
    return after, done.astype(np.float64), done


def model():
    """Returns transition probabilities [S, A, S], without those that end, and rewards [S, A]."""
    move, reward = np.zeros((STATES, ACTIONS, STATES)), np.zeros((STATES, ACTIONS))
    for state in range(STATES):
        for action in range(ACTIONS):
            on = 0.9 * (action == RIGHT[state])
            move[state, action, max(state - 1, 0)] += 1 - on
            if state == STATES - 1:
                reward[state, action] = on
            else:
                move[state, action, state + 1] += on
    return move, reward


def exact_values(policy):
    """Solves V = r + gamma P V of a policy [S, A]."""
    move, reward = model()
    transition = np.einsum("sa,sat->st", policy, move)
    return np.linalg.solve(
        np.eye(STATES) - GAMMA * transition, np.einsum("sa,sa->s", policy, reward)
    )


def best_values():
    move, reward = model()
    values = np.zeros(STATES)
    for _ in range(500):
        values = (reward + GAMMA * move @ values).max(1)
    return values


def token_log_probs(logits):
    """Log-probability of each token given state and tokens before: [S, A, LENGTH].

    logits [S, 1 + TOKENS, TOKENS]: of the first token, and of the second after each first one.
    """
    log_probs = jax.nn.log_softmax(jnp.asarray(logits))
    first, second = np.divmod(np.arange(ACTIONS), TOKENS)
    return jnp.stack([log_probs[:, 0][:, first], log_probs[:, 1 + first, second]], axis=-1)


def token_entropies(logits):
    """Entropy of the distribution that each of those tokens is drawn from: [S, A, LENGTH]."""
    log_probs = jax.nn.log_softmax(logits)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
    first = np.arange(ACTIONS) // TOKENS
    return jnp.stack([entropy[:, 0 * first], entropy[:, 1 + first]], axis=-1)


def policy_of(logits):
    return np.exp(np.asarray(token_log_probs(logits), np.float64).sum(-1))


def play(policy, count, rng):
    """Plays `count` steps in many worlds side by side; returns columns [B, HORIZON].

    A world that ends begins again in the same row, after a discount of 0.
    """
    worlds = count // HORIZON
    state = rng.integers(STATES, size=worlds)
    columns = {name: [] for name in ("state", "action", "reward", "discount", "after")}
    cumulative = policy.cumsum(1)
    for _ in range(HORIZON):
        action = (rng.random((worlds, 1)) > cumulative[state]).sum(1).clip(max=ACTIONS - 1)
        after, reward, done = step(state, action, rng)
        for name, column in zip(columns, (state, action, reward, 1.0 - done, after), strict=True):
            columns[name].append(column)
        state = np.where(done, rng.integers(STATES, size=worlds), after)
    return {name: np.stack(column, axis=1) for name, column in columns.items()}


def learn_values(data, rho, *, rho_bar, c_bar, lambda_=0.9, sweeps=80):
    """Moves tabular values to the mean target of each state, again and again."""
    state, after = data["state"], data["after"]
    returns = jax.jit(
        jax.vmap(
            functools.partial(off_policy_returns, lambda_=lambda_, rho_bar=rho_bar, c_bar=c_bar)
        )
    )
    counts = np.bincount(state.ravel(), minlength=STATES)
    values = np.zeros(STATES)
    for _ in range(sweeps):
        targets = returns(
            data["reward"], GAMMA * data["discount"], rho, values[state], values[after]
        ).targets
        sums = np.bincount(state.ravel(), np.asarray(targets, np.float64).ravel(), STATES)
        values = values + 0.5 * (sums / counts - values)
    return values


@pytest.fixture(scope="module")
def stale():
    """Data of three old policies, and the target policy that never acted."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(STATES, 1 + TOKENS, TOKENS))
    toward = np.zeros_like(start)
    for state, action in enumerate(RIGHT):
        toward[state, 0, action // TOKENS] = toward[
            state, 1 + action // TOKENS, action % TOKENS
        ] = 1
    logits = [0.3 * start + pull * toward for pull in (0.0, 0.3, 0.6)]
    target = policy_of(0.3 * start + 1.5 * toward)
    parts = [play(policy_of(old), 120_000, rng) for old in logits]
    data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    ratios = [
        (target / policy_of(old))[part["state"], part["action"]]
        for old, part in zip(logits, parts, strict=True)
    ]
    return data, np.concatenate(ratios), target


def test_values_from_stale_data_are_the_target_policys_with_correction_and_not_without(stale):
    data, rho, target = stale
    exact = exact_values(target)
    corrected = learn_values(data, rho, rho_bar=1e9, c_bar=1.0)
    uncorrected = learn_values(data, np.ones_like(rho), rho_bar=1.0, c_bar=1.0)
    assert np.abs(corrected - exact).max() < 0.02
    assert np.abs(uncorrected - exact).max() > 0.2


def test_a_truncated_first_weight_gives_the_values_of_vtraces_policy():
    """Espeholt et al. 2018: with rho_bar it is the policy prop. to min(rho_bar mu, pi)."""
    rng = np.random.default_rng(1)
    old, new = (
        np.where(np.arange(ACTIONS) == RIGHT[:, None], lead, (1 - lead) / (ACTIONS - 1))
        for lead in (0.35, 0.85)
    )
    data = play(old, 240_000, rng)
    rho = (new / old)[data["state"], data["action"]]
    between = np.minimum(old, new)
    between /= between.sum(1, keepdims=True)
    values = learn_values(data, rho, rho_bar=1.0, c_bar=1.0)
    assert np.abs(values - exact_values(between)).max() < 0.01
    assert np.abs(values - exact_values(new)).max() > 0.1
    assert np.abs(values - exact_values(old)).max() > 0.1


def test_the_policy_loss_finds_the_best_policy_from_data_that_lags_behind():
    rng, config = np.random.default_rng(2), PolicyLossConfig(entropy=0.01)
    logits = jnp.zeros((STATES, 1 + TOKENS, TOKENS))
    values, transform = np.zeros(STATES), optax.adam(0.05)
    optimizer = transform.init(logits)

    @jax.jit
    def improve(logits, optimizer, data, mu, values):
        state, action = data["state"], data["action"]

        def loss(logits):
            table = token_log_probs(logits)
            log_probs = table[state, action]
            rho = jnp.exp((jax.lax.stop_gradient(log_probs) - mu).sum(-1))
            returns = jax.vmap(off_policy_returns)(
                data["reward"], GAMMA * data["discount"], rho, values[state], values[data["after"]]
            )
            size = state.size
            batch = blank(PRESETS["tiny"], 0)._replace(
                mask=jnp.ones(size),
                invalid=jnp.zeros(size),
                repeats=jnp.zeros(size),
                importance=jnp.ones(size),
                action_ids=jnp.ones((size, LENGTH), jnp.int32),
            )
            flat = log_probs.reshape(size, LENGTH)
            weights = action_weights(returns.advantages.reshape(size), batch, config)
            entropy = token_entropies(logits)[state, action].reshape(size, LENGTH)
            result = policy_loss(flat, mu.reshape(size, LENGTH), entropy, weights, batch, config)
            return result.loss, returns.targets

        (_, targets), grads = jax.value_and_grad(loss, has_aux=True)(logits)
        changes, optimizer = transform.update(grads, optimizer)
        return optax.apply_updates(logits, changes), optimizer, targets

    for _ in range(40):  # rounds; within one, data grows older by eight updates
        mu = np.asarray(token_log_probs(logits))
        data = play(policy_of(logits), 1_200, rng)
        acted = mu[data["state"], data["action"]]
        for _ in range(8):
            logits, optimizer, targets = improve(logits, optimizer, data, acted, values)
            counts = np.maximum(np.bincount(data["state"].ravel(), minlength=STATES), 1)
            sums = np.bincount(
                data["state"].ravel(), np.asarray(targets, np.float64).ravel(), STATES
            )
            values = values + 0.3 * (sums / counts - values)
    best = best_values()
    reached = exact_values(policy_of(logits))
    assert np.all(reached > 0.95 * best), (reached, best)
    assert np.all(exact_values(policy_of(jnp.zeros_like(logits))) < 0.5 * best)
