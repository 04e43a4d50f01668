import dataclasses

import numpy as np
import pytest

from common.errors import ConfigError
from common.models import pretrained
from common.models.reference import Difference, Reference, _until_end, compare
from tests import t5_folder


@pytest.fixture(scope="module")
def loaded():
    return pretrained.load(t5_folder.GATED)


@pytest.fixture
def reference():
    return Reference.load(t5_folder.GATED / "reference.npz")


def test_the_golden_model_is_close(loaded, reference):
    difference = compare(loaded.config, loaded.params, reference)
    assert difference.is_small
    assert 0 < difference.logits_max_abs < 1e-4


def test_a_difference_is_found_where_it_is(loaded, reference):
    logits, log_probs = reference.logits.copy(), reference.label_logprobs.copy()
    logits[0, 0, 5] += 0.5
    log_probs[0, 0] -= 0.25
    log_probs[reference.labels == 0] = 99  # what is said on padding does not count
    greedy = reference.greedy.copy()
    greedy[0, -1] += 1
    wrong = dataclasses.replace(reference, logits=logits, label_logprobs=log_probs, greedy=greedy)
    difference = compare(loaded.config, loaded.params, wrong)
    assert difference.logits_max_abs == pytest.approx(0.5, abs=1e-4)
    assert difference.logprobs_max_abs == pytest.approx(0.25, abs=1e-4)
    assert not difference.greedy_equal


def test_what_a_reference_generates_after_the_end_does_not_count():
    found = _until_end(np.array([[5, 1, 7, 1], [0, 5, 5, 5], [5, 6, 7, 8], [1, 1, 0, 0]]))
    expected = [[5, 1, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8], [1, 0, 0, 0]]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("difference", "small"),
    [
        (Difference(1e-4, 1e-5, True), True),
        (Difference(2e-4, 1e-5, True), False),
        (Difference(1e-5, 2e-4, True), False),
        (Difference(1e-5, 1e-5, False), False),
        (Difference(float("nan"), 1e-5, True), False),
        (Difference(1e-5, float("nan"), True), False),
    ],
)
def test_what_is_small(difference, small):
    assert difference.is_small is small


def test_a_reference_of_another_model_is_refused(loaded, reference):
    for change, message in (
        ({"logits": reference.logits[..., :-1]}, r"logits is \[.*319\]; this model's is \[.*320\]"),
        ({"image_features": reference.image_features[:, :9]}, "image_features is"),
        ({"attention_mask": np.ones_like(reference.input_ids)}, "masks other tokens than padding"),
    ):
        with pytest.raises(ConfigError, match=message):
            compare(loaded.config, loaded.params, dataclasses.replace(reference, **change))


def test_a_file_that_is_no_reference_is_named(tmp_path):
    path = tmp_path / "reference.npz"
    with pytest.raises(ConfigError, match=r"Cannot read .*reference.npz"):
        Reference.load(path)
    np.savez(path, logits=np.ones(3))
    with pytest.raises(ConfigError, match=r"reference.npz: 'input_ids is not a file"):
        Reference.load(path)
    path.write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(ConfigError, match=r"Cannot read .*reference.npz"):
        Reference.load(path)
