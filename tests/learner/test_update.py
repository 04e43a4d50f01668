"""Gradient steps on a model small enough to compile quickly."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import actions
from common.actions import Action, ActionType
from common.models import autoui
from common.models.automaton import Automaton
from common.models.distribution import FREE, SamplingConfig
from common.types import Ending
from learner import losses, sharding
from learner.demonstrations import Demonstrations
from learner.packing import pack, touched_token
from learner.replay import Replay
from learner.update import UpdateConfig, make_updates
from tests.episodes import episode

MODEL = dataclasses.replace(
    autoui.PRESETS["tiny"],
    vocab_size=64,
    d_model=16,
    num_heads=2,
    d_kv=8,
    d_ff=32,
    encoder_layers=1,
    decoder_layers=1,
    image_dim=12,
    image_tokens=4,
    image_grid=(2, 2),
    prompt_length=8,
    action_length=6,
)


@pytest.fixture(scope="module")
def updates():
    config = UpdateConfig(policy_lr=1e-2, policy_warmup=1, imitation_lr=1e-2, imitation_warmup=1)
    return make_updates(MODEL, config, FREE, sharding.make_mesh())


@pytest.fixture
def state(updates):
    return updates.init(jax.random.key(0))


def batch(*episodes, size=16):
    replay = Replay(len(episodes), np.random.default_rng(0))
    for one in episodes:
        replay.insert(one)
    return pack(replay.sample(size), size, horizon=10)


def test_imitation_learns_the_demonstrations(updates, state):
    demos, rng = Demonstrations(50), np.random.default_rng(0)
    for seq in range(3):
        demos.insert(episode(4, seq=seq))
    losses = []
    for _ in range(60):
        rows, steps = demos.sample(8, rng)
        state, report = updates.imitate(state, steps)
        demos.update(rows, np.asarray(report.losses))
        losses.append(float(report.scalars["loss/imitation"]))
    assert losses[-1] < 0.3 * losses[0]
    assert int(state.updates) == 60


def test_imitation_looks_at_what_is_tapped(updates, state):
    demos, rng = Demonstrations(50, MODEL.image_grid), np.random.default_rng(0)
    tap = actions.render(Action(ActionType.DUAL_POINT, (0.9, 0.1), (0.9, 0.1)))
    one = dataclasses.replace(episode(4), actions=(tap,) * 4)
    demos.insert(one)
    path, corner = one.trajectory, MODEL.image_grid[1] * (MODEL.image_grid[0] - 1)

    def share(params):
        looks = autoui.attention(params, MODEL, path.prompt_ids, path.features)
        assert np.asarray(looks).sum(-1) == pytest.approx(1, abs=1e-5)
        return float(looks[..., corner].mean())

    began = share(state.params)
    for _ in range(40):
        _, steps = demos.sample(8, rng)
        assert (steps.touched == corner).all()
        state, report = updates.imitate(state, steps)
    assert share(state.params) > 2 * began
    assert float(report.scalars["loss/grounding"]) < -np.log(1.5 * began)


@pytest.mark.parametrize(
    ("action", "grid", "token"),
    [
        (Action(ActionType.DUAL_POINT, (0.0, 0.0), (0.0, 0.0)), (16, 9), 0),
        (Action(ActionType.DUAL_POINT, (0.51, 0.12), (0.51, 0.12)), (16, 9), 8 * 9 + 1),
        (Action(ActionType.DUAL_POINT, (1.0, 1.0), (1.0, 1.0)), (16, 9), 16 * 9 - 1),
        (Action(ActionType.DUAL_POINT, (0.8, 0.5), (0.2, 0.5)), (16, 9), -1),  # a swipe
        (Action(ActionType.PRESS_BACK), (16, 9), -1),
        (Action(ActionType.DUAL_POINT, (0.5, 0.5), (0.5, 0.5)), None, -1),  # no patches
    ],
)
def test_the_image_token_that_an_action_taps(action, grid, token):
    assert touched_token(actions.render(action), grid) == token


def test_text_that_is_no_action_taps_nothing():
    assert touched_token("Action Plan: [", (16, 9)) == -1


def test_demonstrations_are_sampled_by_their_loss():
    demos, rng = Demonstrations(50), np.random.default_rng(0)
    demos.insert(episode(1, seq=0))
    demos.insert(episode(3, seq=1))
    rows, steps = demos.sample(4000, rng)
    assert set(rows.tolist()) == {0, 1, 2, 3}  # every step, the first and the last included
    assert np.mean(steps.prompt_ids[:, 0] == 3) == pytest.approx(0.75, abs=0.03)  # 3 of 4 steps
    demos.update(np.array([1, 2, 3]), np.array([1.0, 0.0, 99.0]))
    rows, _ = demos.sample(4000, rng)
    weights = np.array([3.0, 1.0, 0.02, 3.0])  # not seen again, seen, known, capped
    np.testing.assert_allclose(
        np.bincount(rows, minlength=4) / 4000, weights / weights.sum(), atol=0.03
    )


def test_the_policy_moves_towards_what_succeeded(updates, state):
    good = batch(episode(4, seq=0), episode(4, seq=1))
    before = None
    for _ in range(60):
        state, report = updates.improve(state, good)
        before = report.scalars["policy/log_prob"] if before is None else before
    assert float(report.scalars["policy/log_prob"]) > float(before) + 0.1


def test_successes_ground_the_attention_and_failures_do_not(updates, state):
    tap = actions.render(Action(ActionType.DUAL_POINT, (0.9, 0.1), (0.9, 0.1)))
    grounding = {}
    for success in (True, False):
        one = dataclasses.replace(episode(4, success=success), actions=(tap,) * 4)
        replay = Replay(1, np.random.default_rng(0))
        replay.insert(one)
        steps = pack(replay.sample(8), 8, horizon=10, grid=MODEL.image_grid)
        filtered = UpdateConfig(
            loss=losses.PolicyLossConfig(advantage="filtered", binary=True, imitate=True)
        )
        step = make_updates(MODEL, filtered, FREE, sharding.make_mesh()).improve
        _, report = step(jax.tree.map(jnp.copy, state), steps)
        grounding[success] = float(report.scalars["loss/grounding"])
    assert grounding[True] > 0.1
    assert grounding[False] == 0


def test_gradients_that_are_not_finite_change_nothing_and_are_counted(updates, state):
    rows = batch(episode(4))
    broken = rows._replace(behaviour_log_probs=np.full_like(rows.behaviour_log_probs, np.nan))
    before = jax.tree.map(np.array, state._replace(updates=None))
    state, report = updates.improve(state, broken)
    assert float(report.scalars["policy/skipped"]) == 1
    jax.tree.map(np.testing.assert_array_equal, before, state._replace(updates=None))
    state, report = updates.improve(state, rows)
    assert float(report.scalars["policy/skipped"]) == 0


def test_accumulated_gradients_make_one_step_of_their_mean():
    accumulating = make_updates(MODEL, UpdateConfig(accumulate=2), FREE, sharding.make_mesh())
    state, rows = accumulating.init(jax.random.key(0)), batch(episode(4))
    began = jax.tree.map(np.array, state.params)
    state, _ = accumulating.improve(state, rows)
    jax.tree.map(np.testing.assert_array_equal, began, state.params)
    state, _ = accumulating.improve(state, rows)
    plain = make_updates(MODEL, UpdateConfig(), FREE, sharding.make_mesh())
    once, _ = plain.improve(plain.init(jax.random.key(0)), rows)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), state.params, once.params
    )


def test_the_step_size_is_a_share_of_the_change(updates):
    rows, changes = batch(episode(4)), []
    for share in (1.0, 0.25):
        state = updates.init(jax.random.key(0))
        began = jax.tree.map(np.array, state.params)
        state, _ = updates.improve(state, rows, share)
        changes.append(jax.tree.map(lambda a, b: np.asarray(a) - b, state.params, began))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a / 4, b, atol=3e-7), *changes)


def test_measuring_is_improving_without_the_step(updates, state):
    rows = batch(episode(4), episode(3, seq=1, success=False))
    before = jax.tree.map(np.array, state)
    state, measured = updates.measure(state, rows)
    jax.tree.map(np.testing.assert_array_equal, before, state)
    _, reported = updates.improve(state, rows)
    for name in ("td", "rho", "entropy", "targets", "instruction_value"):
        np.testing.assert_allclose(getattr(measured, name), getattr(reported, name), atol=1e-6)


def test_the_critic_learns_which_episodes_succeed(updates, state):
    mixed = batch(episode(4, seq=0), episode(4, seq=1, success=False))
    for _ in range(200):
        state, _ = updates.improve_critic(state, mixed)
    _, report = updates.improve(state, mixed)
    first = np.asarray(report.instruction_value[:4])
    success = first if mixed.outcome[0] else np.asarray(report.instruction_value[4:8])
    failure = np.asarray(report.instruction_value[4:8]) if mixed.outcome[0] else first
    assert success.min() > 0.8
    assert failure.max() < 0.2


def test_a_model_of_an_image_encoder_s_features_takes_floats():
    model = dataclasses.replace(MODEL, image_tokens=1, image_grid=None)
    updates = make_updates(model, UpdateConfig(), FREE, sharding.make_mesh())
    one = episode(4)
    features = np.full((4, 1, model.image_dim), -0.3, model.features_dtype)
    one = dataclasses.replace(one, trajectory=one.trajectory._replace(features=features))
    rows = batch(one)
    assert rows.features.dtype == np.float32
    before = jax.eval_shape(updates.init, jax.random.key(0))
    after, report = jax.eval_shape(updates.improve, before, rows)  # compiling it takes seconds
    assert jax.tree.map(lambda leaf: leaf.shape, (before, rows.reward)) == jax.tree.map(
        lambda leaf: leaf.shape, (after, report.td)
    )


def test_padding_changes_nothing(updates):
    one = episode(4, seq=0), episode(5, seq=1, success=False)
    reports = []
    for size in (9, 16):
        state, report = updates.improve(updates.init(jax.random.key(0)), batch(*one, size=size))
        reports.append((report.td[:9], jax.device_get(state.params)))
    (td, params), (td_padded, params_padded) = reports
    np.testing.assert_allclose(td, td_padded, atol=1e-6)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(params_padded), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_a_truncated_episode_is_bootstrapped_and_its_outcome_not_learned(updates, state):
    cut = batch(episode(3, ending=Ending.TRUNCATED))
    critic_before = jax.device_get(state.critic_params)
    state, report = updates.improve(state, cut)
    # At first all values are about one half, so r + V(s') - V(s) is 0, not -1/2.
    assert np.abs(np.asarray(report.td[:2])).max() < 0.05
    for a, b in zip(
        jax.tree.leaves(critic_before), jax.tree.leaves(state.critic_params), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1.1e-6)  # weight decay alone


def test_an_experts_actions_have_a_ratio_of_one(updates, state):
    shown = dataclasses.replace(episode(3, seq=0), source="expert")
    _, report = updates.improve(state, batch(shown, episode(3, seq=1)))
    rho = np.asarray(report.rho[:6])
    assert sorted((rho > 0.99).tolist()) == [False] * 3 + [True] * 3  # fresh tokens have 1/64 each


def test_filtered_imitation_leaves_the_values_alone(state):
    """Of successes alone the critic would learn to expect nothing else."""
    loss = losses.PolicyLossConfig(advantage="filtered", binary=True, imitate=True)
    updates = make_updates(MODEL, UpdateConfig(loss=loss), FREE, sharding.make_mesh())
    before = jax.device_get(state.critic_params)
    after, _ = updates.improve(state, batch(episode(4)))
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(after.critic_params))


def only_even_tokens() -> Automaton:
    """A grammar of even tokens, of any number, with states 0 (off), 1 and 2 (done)."""
    token_class = (np.arange(64) % 2 == 0).astype(np.int16)
    token_class[[0, 1]] = 0, 2
    states = np.arange(3, dtype=np.int16)
    return Automaton(
        next_state=np.array([[0, 0, 0], [0, 1, 2], [0, 0, 0]], np.int16),
        token_class=token_class,
        tokens_left=np.array([1 << 14, 1, 0], np.int16),
        forced=np.zeros((3, 0), np.int32),
        forced_count=np.zeros(3, np.int32),
        forced_end=states,
        done=2,
        block=1,
    )


def test_tokens_that_would_not_be_drawn_are_counted_and_do_no_harm():
    sampling = SamplingConfig(temperature=0.8, top_k=60, grammar=True)
    made = make_updates(
        MODEL, UpdateConfig(loss=losses.PolicyLossConfig(entropy=0.01)), sampling,
        sharding.make_mesh(), only_even_tokens(),
    )  # fmt: skip
    rows = batch(episode(4, seq=0), episode(4, seq=1, success=False))
    ids = rows.action_ids
    odd = ((ids % 2 == 1) & (ids > 1)).any(-1)
    state = made.init(jax.random.key(0))
    state, report = made.improve(state, rows)
    outside = float(report.scalars["policy/outside_tokens"])
    assert odd.sum() <= outside < 1.5 * odd.sum() + 3  # the first; after it anything but top_k goes
    assert all(np.isfinite(value) for value in jax.device_get(report.scalars).values())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.device_get(state.params)))
    np.testing.assert_array_less(np.asarray(report.rho)[odd], 1e-6)


def test_a_new_optimizer_keeps_the_parameters(updates, state):
    before = jax.device_get(state.params)
    state = updates.restart_policy_optimizer(state)
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(state.params))


@pytest.mark.parametrize("field", ["loss/policy", "offpolicy/ess", "value/mean"])
def test_reports_are_finite(updates, state, field):
    _, report = updates.improve(state, batch(episode(4)))
    assert np.isfinite(float(report.scalars[field]))
