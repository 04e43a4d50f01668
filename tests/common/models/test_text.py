import itertools
import random

import numpy as np
import pytest

from common.errors import ConfigError
from common.models.text import Tokenizer, grammar_corpus

GOALS = (
    "Open the Clock app",
    "Go to bestbuy.com, search for 'logitech webcam', and select the first entry",
)
NOWHERE = '"touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]"'


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(itertools.chain(grammar_corpus(), GOALS * 3))


def _point(y, x, to_y, to_x):
    return (
        'Action Plan: [DUAL_POINT] ; Action Decision: "action_type": "DUAL_POINT", '
        f'"touch_point": "[{y:.4f}, {x:.4f}]", "lift_point": "[{to_y:.4f}, {to_x:.4f}]", '
        '"typed_text": ""'
    )


def _typed(text, kind="TYPE"):
    return (
        f'Action Plan: [{kind}] ; Action Decision: "action_type": "{kind}", {NOWHERE}, '
        f'"typed_text": "{text}"'
    )


def _length(ids):
    return int((ids != 0).sum())


def test_actions_are_short(tokenizer):
    hundredths = [value / 100 for value in range(101)]
    for y, x in itertools.product(hundredths, hundredths[::7]):
        assert _length(tokenizer.encode_action(_point(y, x, y, x), 18)) == 16
        assert _length(tokenizer.encode_action(_point(y, x, x, y), 18)) == 16
    assert _length(tokenizer.encode_action(_typed("", "PRESS_HOME"), 18)) == 4
    assert _length(tokenizer.encode_action(_typed("", "STATUS_TASK_COMPLETE"), 18)) == 4
    assert _length(tokenizer.encode_action(_typed("logitech webcam"), 18)) <= 8


def test_any_text_comes_back(tokenizer):
    rng = random.Random(0)
    texts = [
        "",
        "</s><pad>",
        ' , : " \\ \n\t\0',
        "naïve 東京 🎉 ​",
        "Action Plan: [",
        "12345 1.00 -1.0, 0.",
        _typed('a, b: "c" [d] 99'),
        "Action Plan: [CLICK,TYPE,PRESS_HOME] ; Action Decision: x",
    ]
    alphabet = [chr(code) for code in (*range(1, 300), 0x4E2D, 0x1F600)]
    pieces = ["Previous Actions: ", " Goal:", "0.85", '"typed_text": "', "TYPE", *alphabet]
    texts += ["".join(rng.choices(pieces, k=rng.randrange(60))) for _ in range(500)]
    for text in texts:
        assert tokenizer.decode(tokenizer.encode_action(text, 1000)) == text


def test_what_follows_the_end_token_is_not_read(tokenizer):
    ids = tokenizer.encode_action("tap", 30)
    ids[_length(ids) :] = 50
    assert tokenizer.decode(ids) == "tap"
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode([5000, *ids]) == "tap"  # a model may have spare ids


def test_a_long_prompt_keeps_its_end_and_a_short_one_is_padded(tokenizer):
    text = f"Previous Actions: {_typed('x').split('Decision: ')[1]} Goal: {GOALS[1]}"
    whole = tokenizer.encode_prompt(text, 100)
    count = _length(whole)
    assert whole.dtype == np.int32
    assert whole.shape == (100,)
    assert whole[count - 1] == 1
    np.testing.assert_array_equal(tokenizer.encode_prompt(text, 10), whole[count - 10 : count])
    np.testing.assert_array_equal(tokenizer.encode_prompt(text, count), whole[:count])


def test_an_action_that_does_not_fit_is_refused(tokenizer):
    text = _point(0.5, 0.5, 0.5, 0.5)
    assert tokenizer.decode(tokenizer.encode_action(text, 16)) == text
    with pytest.raises(ConfigError, match="needs 16 tokens and action_length is 15"):
        tokenizer.encode_action(text, 15)


def test_json_carries_all_of_it(tokenizer):
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.vocab_size == tokenizer.vocab_size <= 1024
    for text in (*GOALS, "</s>", _point(0.12, 0.34, 0.12, 0.34)):
        expected = tokenizer.encode_action(text, 200)
        np.testing.assert_array_equal(again.encode_action(text, 200), expected)


def test_training_is_reproducible():
    one, other = (Tokenizer.train(itertools.chain(grammar_corpus(), GOALS)) for _ in range(2))
    assert one.to_json() == other.to_json()


def test_what_is_no_tokenizer_is_refused(tokenizer):
    for text in ("", "{}", "[]", tokenizer.to_json()[:-50], '{"model": {"type": "Unigram"}}'):
        with pytest.raises(ConfigError, match="This is"):
            Tokenizer.from_json(text)
    with pytest.raises(ConfigError, match="vocab_size is 100; it must be 258 or more"):
        Tokenizer.train(GOALS, 100)
