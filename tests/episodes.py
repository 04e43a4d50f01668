"""Episodes with made-up contents, for tests."""

import numpy as np

from common.types import EOS_ID, Ending, Episode, Trajectory


def episode(length=4, *, seq=0, success=True, ending=None, seed=0, prompt=8, action=6, vocab=64):
    """Returns an episode; every prompt starts with `seq + 2`, so that rows can be told apart."""
    rng = np.random.default_rng([seed, seq])
    prompt_ids = rng.integers(2, vocab, (length, prompt)).astype(np.int32)
    prompt_ids[:, 0] = seq + 2
    action_ids = rng.integers(2, vocab, (length, action)).astype(np.int32)
    action_ids[:, -2], action_ids[:, -1] = EOS_ID, 0
    ending = ending or (Ending.SUCCESS if success else Ending.HORIZON)
    success = ending is Ending.SUCCESS
    reward = np.zeros(length, np.float32)
    reward[-1] = float(success)
    discount = np.ones(length, np.float32)
    discount[-1] = float(ending is Ending.TRUNCATED)  # then its last row lends its value
    mask = np.ones(length, np.uint8)
    if ending is Ending.TRUNCATED:
        mask[-1] = 0
    return Episode(
        trajectory=Trajectory(
            prompt_ids=prompt_ids,
            features=rng.integers(0, 256, (length, 4, 12)).astype(np.uint8),
            action_ids=action_ids,
            behaviour_log_probs=np.where(action_ids > 0, -0.1, 0.0).astype(np.float32),
            reward=reward,
            discount=discount,
            invalid=np.zeros(length, np.uint8),
            repeats=np.zeros(length, np.uint8),
            mask=mask,
            version=np.ones(length, np.int64),
        ),
        actor="test",
        boot="b",
        seq=seq,
        source="policy",
        task_id=f"task-{seq}",
        template="template",
        family="family",
        suite="general",
        goal="Open the clock",
        seed=seed,
        ending=ending,
        cause="",
        verdict={"status": "success" if success else "failure"},
        lineage=1,
        temperature=1.0,
        duration_s=1.0,
        prompts=("prompt",) * length,
        actions=("action",) * length,
    )
