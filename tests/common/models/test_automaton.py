"""The automaton over tokens, walked on the host: the model knows nothing of this."""

import random
import unicodedata

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from common import actions
from common.actions import Action, ActionType
from common.errors import ConfigError
from common.models import automaton
from common.models.automaton import OFF, START, automaton_for
from common.models.distribution import FREE, SamplingConfig
from common.models.text import Tokenizer

TAP = actions.render(Action(ActionType.DUAL_POINT, (0.8497, 0.5964), (0.8497, 0.5964)))
NEAR = 1 << 13  # tokens; what takes more has no end


def choices(made, state, room=NEAR):
    """The tokens that are allowed, by the tables alone."""
    left = made.tokens_left[made.next_state[state]][made.token_class]
    return np.flatnonzero(left < room)


def walk(made, ids):
    """The states before each token and after the last."""
    states = [START]
    for token in ids:
        states.append(made.next_state[states[-1], made.token_class[token]])
    return states


def example(rng: random.Random, alphabet: str) -> str:
    kind = rng.choice(list(ActionType))
    plan = rng.choices(list(ActionType), k=rng.randrange(1, 5))
    if kind is ActionType.DUAL_POINT:
        text = actions.render(Action(kind, (0.5, 0.5), (0.5, 0.5)), plan)
        for _ in range(4):
            number = rng.choice([0.0, 1.0, rng.random(), rng.random()])
            text = text.replace("0.5000", f"{number:.4f}"[: rng.randrange(3, 7)], 1)
        return text
    text = "".join(rng.choices(alphabet, k=rng.randrange(9))).strip()
    return actions.render(Action(kind, text=text if kind is ActionType.TYPE else ""), plan)


def test_what_is_written_in_the_grammar_is_allowed(tokenizer, actions_automaton):
    rng = random.Random(0)
    lossless = "pieces" if tokenizer.encode("{\\")[-1] == 2 else "bpe"
    alphabet = "abc dE7,.\"'[]" + {"bpe": "\\é東🎉", "pieces": ""}[lossless]
    for _ in range(1000):
        text = example(rng, alphabet)
        if lossless == "pieces":
            text = text.replace('\\"', "")  # there is no sign for a backslash
        ids = [*tokenizer.encode(text), 1]
        states = walk(actions_automaton, ids)
        assert states[-1] == actions_automaton.done, text
        left = actions_automaton.tokens_left[states]
        assert (left <= np.arange(len(ids), -1, -1)).all()  # so a budget that fits allows it


@pytest.mark.parametrize("length", [None, 2, 20])
def test_whatever_is_drawn_ends_in_time_and_can_be_read(tokenizer, actions_automaton, length):
    """`length` tokens more than the shortest action has; None is room for anything."""
    rng = np.random.default_rng(0)
    made = actions_automaton
    length = 150 if length is None else int(made.tokens_left[START]) + length
    kinds = set()
    for _ in range(300):
        ids, state = [], START
        while state != made.done:
            allowed = choices(made, state, length - len(ids))
            after = made.next_state[state, made.token_class[allowed]]
            state = rng.choice(np.unique(after))  # or else most tokens are of a typed text
            ids.append(int(rng.choice(allowed[after == state])))
        assert len(ids) <= length
        assert ids[-1] == 1
        action = actions.parse(tokenizer.decode(ids))
        assert isinstance(action, Action), tokenizer.decode(ids)
        assert not any(unicodedata.category(char) == "Cc" for char in action.text)
        kinds.add(action.type)
    if length == 150:
        assert kinds == set(ActionType)


def test_only_types_and_numbers_are_a_choice(tokenizer, actions_automaton):
    ids, pieces = [*tokenizer.encode(TAP), 1], tokenizer.pieces()
    states = walk(actions_automaton, ids)[:-1]
    drawn = [i for i, s in zip(ids, states, strict=True) if len(choices(actions_automaton, s)) > 1]
    assert len(drawn) == {16: 13}.get(len(ids), len(drawn)) <= 30
    if len(ids) > 16:
        assert not set(b"".join(pieces[i] for i in drawn)) & set(b"achilnopt")
    for i in drawn:
        assert set(pieces[i]) & set(b"0123456789.DUALPOINT,]"), pieces[i]


def test_another_segmentation_is_off(tokenizer, actions_automaton):
    ids, pieces = tokenizer.encode(TAP), tokenizer.pieces()
    of_piece = {piece: i for i, piece in enumerate(pieces) if piece}
    tried = 0
    for index, token in enumerate(ids):
        piece = pieces[token]
        for cut in range(1, len(piece)):
            parts = [of_piece.get(piece[:cut]), of_piece.get(piece[cut:])]
            if None in parts or any(byte in b"0123456789" for byte in piece):
                continue
            other = [*ids[:index], *parts, *ids[index + 1 :]]
            assert b"".join(pieces[i] for i in other).strip() == TAP.encode()
            assert walk(actions_automaton, other)[-1] == OFF
            tried += 1
    assert tried


def test_nothing_leads_back_from_off_or_on_from_the_end(actions_automaton):
    assert not actions_automaton.next_state[OFF].any()
    assert not actions_automaton.next_state[actions_automaton.done].any()
    assert not actions_automaton.next_state[:, actions_automaton.token_class[0]].any()  # padding
    spare = actions_automaton.token_class[639]  # no piece has this id
    assert not actions_automaton.next_state[:, spare].any()


def test_tokens_left_are_the_fewest(actions_automaton):
    made = actions_automaton
    level, distance = {made.done}, {made.done: 0}
    while level:  # breadth first from the end
        before = {
            state
            for state in range(made.done)
            if state not in distance and set(made.next_state[state]) & level
        }
        distance |= dict.fromkeys(before, distance[next(iter(level))] + 1)
        level = before
    for state in range(START, made.done + 1):
        assert made.tokens_left[state] == distance[state]


def test_what_is_forced_is_the_only_choice(actions_automaton):
    made = actions_automaton
    longest = 0
    for state in range(made.done + 1):
        at = state
        for token in made.forced[state, : made.forced_count[state]]:
            np.testing.assert_array_equal(choices(made, at), [token])
            at = made.next_state[at, made.token_class[token]]
        assert at == made.forced_end[state]
        assert not made.forced[state, made.forced_count[state] :].any()
        if at != made.done:
            assert made.forced_count[state] < made.block
            assert len(choices(made, at)) != 1 or made.forced_count[state] == made.block - 1
            longest = max(longest, made.forced_count[state])
    assert longest == made.block - 1 <= 15


def test_it_stays_small_for_a_large_vocabulary(tokenizers_of_both_kinds):
    for one in tokenizers_of_both_kinds.values():
        made = automaton.build(one, 32128)
        size = sum(value.nbytes for value in vars(made).values() if isinstance(value, np.ndarray))
        assert size < 1 << 20
        assert made.token_class.shape == (32128,)


def test_it_is_built_once_for_equal_tokenizers(tokenizer):
    one, other = (Tokenizer(Backend.from_str(tokenizer.to_json())) for _ in range(2))
    assert one == other != tokenizer.to_json()
    assert automaton.build(one, 640) is automaton.build(other, 640)


def test_it_is_built_when_it_is_wanted_and_fits(tokenizer):
    sampling = SamplingConfig(grammar=True)
    assert automaton_for(FREE, tokenizer, 640, 3) is None
    needed = automaton.build(tokenizer, 640).tokens_left[START]
    assert automaton_for(sampling, tokenizer, 640, needed) is automaton.build(tokenizer, 640)
    with pytest.raises(ConfigError, match=f"the shortest action has {needed} tokens"):
        automaton_for(sampling, tokenizer, 640, needed - 1)


def test_a_tokenizer_without_the_signs_is_refused(train_pieces):
    with pytest.raises(ConfigError, match="cannot write 'Action Plan: "):
        automaton.build(train_pieces(["Action Plan, without brackets"] * 9, 30), 640)
