"""Episodes as messages: round trips, typed refusals, and nothing else under random damage."""

import dataclasses
import zlib

import msgpack
import numpy as np
import pytest

from common import messages
from common.codec import ALIGNMENT, EpisodeSpec, decode_episode, encode_episode
from common.errors import WireError
from common.types import Ending, Trajectory
from tests.episodes import episode

SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=64)
PNG = b"\x89PNG\r\n\x1a\n and the rest"


def full_episode(**changes):
    made = episode(3, seq=5)
    rich = {
        "goal": "Suche „Käse“",
        "prompts": ("", "a, b: ü", "\N{MOBILE PHONE}"),
        "actions": ("x", "", "yy"),
        "screens": (PNG, PNG + b"1", b"\xff\xd8\xff jpeg"),
        "verdict": {"status": "success", "votes": [1, 2.5, None, True], "by": {"rule": "state"}},
    }
    return dataclasses.replace(made, **rich | changes)


def truncated_episode():
    made = episode(3, ending=Ending.TRUNCATED)
    trajectory = made.trajectory._replace(discount=np.ones(3, np.float32))
    return dataclasses.replace(made, trajectory=trajectory, cause="adb: gone")


def decode(frames, spec=SPEC):
    return decode_episode(*messages.unpack(frames), spec)


def altered(frames, body=None, **fields):
    """Returns the frames with other fields (None removes one) and a right checksum."""
    body = frames[1] if body is None else bytes(body)
    header = msgpack.unpackb(frames[0]) | {"crc32": zlib.crc32(body)} | fields
    return [msgpack.packb({k: v for k, v in header.items() if v is not None}), body]


def with_array(name, value, made=None):
    made = made or full_episode()
    return dataclasses.replace(made, trajectory=made.trajectory._replace(**{name: value}))


def assert_equal(one, other):
    for field in dataclasses.fields(one):
        if field.name != "trajectory":
            assert getattr(one, field.name) == getattr(other, field.name), field.name
    for name in Trajectory._fields:
        a, b = getattr(one.trajectory, name), getattr(other.trajectory, name)
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, name)


@pytest.mark.parametrize(
    "made",
    [full_episode(), full_episode(screens=()), truncated_episode(), episode(1)],
    ids=["full", "no screens", "truncated", "one step"],
)
def test_round_trip(made):
    assert_equal(decode(encode_episode(made)), made)


def test_columns_are_aligned_views_of_the_body():
    frames = encode_episode(full_episode())
    table = messages.unpack(frames)[0].get("columns", list)
    assert [offset % ALIGNMENT for *_, offset, _ in table] == [0] * len(table)
    features = decode(frames).trajectory.features
    assert not features.flags.owndata and not features.flags.writeable


def test_big_endian_arrays_travel_as_little_endian():
    made = full_episode()
    big = with_array("version", made.trajectory.version.astype(">i8"), made)
    assert_equal(decode(encode_episode(big)), made)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_features_of_an_image_encoder_travel_as_they_are(dtype):
    spec = SPEC._replace(image_tokens=1, features_dtype=dtype)
    features = np.random.default_rng(0).normal(0, 9, (3, 1, 12)).astype(dtype)
    made = with_array("features", features)
    assert_equal(decode(encode_episode(made), spec), made)
    for wrong in (SPEC, spec._replace(features_dtype="uint8")):
        with pytest.raises(WireError, match="BAD_SCHEMA"):
            decode(encode_episode(made), wrong)
    with pytest.raises(WireError, match=r"BAD_SCHEMA.*features"):
        decode(encode_episode(with_array("features", features.astype(np.float64))), spec)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 65505.0, -1e30])
def test_features_beyond_all_measure_are_refused(value):
    features = np.zeros((3, 4, 12), np.float32)
    features[1, 2, 3] = value
    with pytest.raises(WireError, match=r"BAD_VALUE.*feature"):
        frames = encode_episode(with_array("features", features))
        decode(frames, SPEC._replace(features_dtype="float32"))


NAN = np.array([0, np.nan, 1], np.float32)
BAD_ARRAYS = {
    "a reward that is not finite": ("reward", NAN),
    "a discount that is not finite": ("discount", NAN),
    "an end before the end": ("discount", np.array([1, 0, 0], np.float32)),
    "no end": ("discount", np.array([1, 1, 1], np.float32)),
    "a discount above 1": ("discount", np.array([1, 2, 0], np.float32)),
    "a masked step": ("mask", np.array([1, 0, 1], np.uint8)),
    "a masked end": ("mask", np.array([1, 1, 0], np.uint8)),
    "a flag of 2": ("invalid", np.array([0, 2, 0], np.uint8)),
    "a negative token": ("prompt_ids", np.full((3, 8), -1, np.int32)),
    "a token outside the vocabulary": ("action_ids", np.full((3, 6), 64, np.int32)),
    "a probability above 1": ("behaviour_log_probs", np.full((3, 6), 0.1, np.float32)),
    "a log-probability of -inf": ("behaviour_log_probs", np.full((3, 6), -np.inf, np.float32)),
    "a policy without a version": ("version", np.full(3, -1, np.int64)),
}


@pytest.mark.parametrize(("name", "value"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_values_that_no_actor_means_are_refused(name, value):
    with pytest.raises(WireError, match="BAD_VALUE"):
        decode(encode_episode(with_array(name, value)))


def test_a_truncated_episode_goes_on_after_its_last_row():
    made = truncated_episode()
    for name, value in [("discount", [1, 1, 0]), ("mask", [1, 1, 1])]:
        dtype = getattr(made.trajectory, name).dtype
        with pytest.raises(WireError, match="BAD_VALUE"):
            decode(encode_episode(with_array(name, np.array(value, dtype), made)))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (full_episode(prompts=("a", "b")), "BAD_SCHEMA"),
        (full_episode(screens=(PNG,)), "BAD_SCHEMA"),
        (full_episode(screens=(b"GIF89a",) * 3), "BAD_VALUE"),
        (full_episode(goal="x" * 5000), "TOO_LARGE"),
        (full_episode(actor=""), "BAD_VALUE"),
        (full_episode(source="human"), "BAD_VALUE"),
        (full_episode(seq=-1), "BAD_VALUE"),
        (full_episode(temperature=float("nan")), "BAD_VALUE"),
        (full_episode(verdict={"score": float("inf")}), "BAD_VALUE"),
        (full_episode(verdict={"a": [[[[[]]]]]}), "BAD_SCHEMA"),
        (full_episode(verdict={"a": b"bytes"}), "BAD_SCHEMA"),
        (with_array("reward", np.zeros(3, np.float64)), "BAD_SCHEMA"),
        (with_array("features", np.zeros((3, 4, 13), np.uint8)), "BAD_SCHEMA"),
    ],
)
def test_other_contents_are_refused_by_name(made, code):
    with pytest.raises(WireError, match=code):
        decode(encode_episode(made))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (episode(257), "TOO_LARGE"),
        (full_episode(verdict={"reason": "x" * 70_000}), "TOO_LARGE"),
        (full_episode(verdict={"when": object()}), "BAD_HEADER"),
        (full_episode(goal="\ud800"), "BAD_HEADER"),
        (full_episode(prompts=("\ud800", "", "")), "BAD_VALUE"),
    ],
)
def test_the_sender_learns_what_can_not_travel(made, code):
    with pytest.raises(WireError, match=code):
        encode_episode(made)


GOOD = encode_episode(full_episode())
BAD_FRAMES = {
    "one frame": (GOOD[:1], "BAD_FRAMES"),
    "three frames": ([*GOOD, b""], "BAD_FRAMES"),
    "a huge header": ([bytes(65 * 1024), b""], "TOO_LARGE"),
    "a huge body": ([GOOD[0], bytes(messages.MAX_BODY_BYTES + 1)], "TOO_LARGE"),
    "no msgpack": ([b"\xc1", b""], "BAD_HEADER"),
    "an empty header": ([b"", b""], "BAD_HEADER"),
    "a list": ([b"\x90", b""], "BAD_HEADER"),
    "a key twice": ([b"\x82\xa1v\x01\xa1v\x01", b""], "BAD_HEADER"),
    "a key of bytes": ([b"\x81\xc4\x01v\x01", b""], "BAD_HEADER"),
    "an extension": ([b"\x81\xa1v\xc7\x00\x05", b""], "BAD_HEADER"),
    "a timestamp": ([b"\x81\xa1v\xd6\xff\x00\x00\x00\x00", b""], "BAD_HEADER"),
    "text that is not UTF-8": ([b"\x81\xa1v\xa1\xff", b""], "BAD_HEADER"),
    "trailing bytes": ([GOOD[0] + b"\x00", GOOD[1]], "BAD_HEADER"),
    "nesting without end": ([b"\x91" * 5000, b""], "BAD_HEADER"),
    "another version": (altered(GOOD, v=99), "BAD_VERSION"),
    "a version that is true": (altered(GOOD, v=True), "BAD_SCHEMA"),
    "no version": (altered(GOOD, v=None), "BAD_SCHEMA"),
    "no columns": (altered(GOOD, columns=None), "BAD_SCHEMA"),
    "a wrong checksum": (altered(GOOD, crc32=1), "BAD_CHECKSUM"),
    "a short body": (altered(GOOD, GOOD[1][:-1]), "BAD_SCHEMA"),
    "a long body": (altered(GOOD, GOOD[1] + b"\0"), "BAD_SCHEMA"),
}


@pytest.mark.parametrize(("frames", "code"), BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_malformed_frames_are_refused_by_name(frames, code):
    with pytest.raises(WireError, match=code):
        decode(frames)


@pytest.mark.parametrize("column", range(16))
@pytest.mark.parametrize(
    "change",
    [
        lambda c: c[:4],
        lambda c: ["x", *c[1:]],
        lambda c: [c[0], "|O8", *c[2:]],
        lambda c: [c[0], "V1000000000", *c[2:]],
        lambda c: [c[0], c[1].replace("<", ">"), [*c[2], 1], *c[3:]],
        lambda c: [c[0], c[1], [-1, *c[2][1:]], *c[3:]],
        lambda c: [c[0], c[1], [2**62, *c[2][1:]], *c[3:]],
        lambda c: [*c[:3], c[3] + 64, c[4]],
        lambda c: [*c[:4], c[4] - 1],
        lambda c: None,
    ],
)
def test_another_table_of_columns_is_refused(column, change):
    table = msgpack.unpackb(GOOD[0])["columns"]
    table[column] = change(table[column])
    with pytest.raises(WireError, match=r"BAD_SCHEMA|TOO_LARGE"):
        decode(altered(GOOD, columns=table))


def assert_believable(made):
    """What the learner relies on, said again in the simplest way."""
    t, steps = made.trajectory, len(made)
    assert all(len(column) == steps for column in t)
    assert len(made.prompts) == len(made.actions) == steps and len(made.screens) in (0, steps)
    assert all(0 <= i < SPEC.vocab_size for i in [*t.prompt_ids.flat, *t.action_ids.flat])
    assert all(np.isfinite(x) for x in [*t.reward, *t.discount, *t.behaviour_log_probs.flat])
    ends = [d == 0 for d in t.discount]
    assert ends == [False] * (steps - 1) + [made.ending is not Ending.TRUNCATED]
    assert min(t.version) >= -1 and made.seq >= 0 and made.lineage >= 0 and made.seed >= 0
    assert np.isfinite(made.temperature) and np.isfinite(made.duration_s)
    assert made.source in ("policy", "expert") and isinstance(made.ending, Ending)


def mutate_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(data)))
        match rng.integers(4):
            case 0:
                data[at] = int(rng.integers(256))
            case 1:
                data[at] ^= 1 << int(rng.integers(8))
            case 2:
                del data[at : at + int(rng.integers(1, 9))]
            case 3:
                data[at:at] = rng.bytes(int(rng.integers(1, 9)))
    return bytes(data)


ZOO = [-1, 0, 1, 2**63, 2**64 - 1, 0.5, -1e300, float("nan"), float("inf"), True, "", "x" * 300]
ZOO += ["policy", "expert", "truncated", b"", b"ab", [], [[]], {}, {"a": {}}, [1, 2], [-1], None]


def mutate_value(rng, value):
    """Replaces one random leaf of nested lists and dicts."""
    if isinstance(value, list | dict) and value and rng.random() < 0.9:
        copy = value.copy()
        keys = list(copy) if isinstance(copy, dict) else range(len(copy))
        key = keys[int(rng.integers(len(keys)))]
        if rng.random() < 0.05:
            del copy[key]
        else:
            copy[key] = mutate_value(rng, copy[key])
        return copy
    return ZOO[int(rng.integers(len(ZOO)))]


def test_random_damage_gives_refusals_or_believable_episodes():
    rng = np.random.default_rng(0)
    seeds = [encode_episode(e) for e in (full_episode(), truncated_episode(), episode(1))]
    refused, taken = {}, 0
    for count in range(20_000):
        header, body = seeds[count % len(seeds)]
        match count % 4:
            case 0:
                frames = [mutate_bytes(rng, header), body]
            case 1:
                frames = [msgpack.packb(mutate_value(rng, msgpack.unpackb(header))), body]
            case 2:
                frames = altered([header, body], mutate_bytes(rng, body))
            case 3:
                flipped = bytearray(body)  # of the same length, so that values are what is wrong
                flipped[int(rng.integers(len(body)))] = int(rng.integers(256))
                frames = altered([header, body], flipped)
        try:
            made = decode(frames)
        except WireError as error:
            refused[error.code] = refused.get(error.code, 0) + 1
        else:
            taken += 1
            assert_believable(made)
            if count % 10 == 0:
                assert_equal(decode(encode_episode(made)), made)
    # The damage reached every check, and wasn't all refused at the first.
    assert {"BAD_HEADER", "BAD_SCHEMA", "BAD_VALUE", "BAD_CHECKSUM", "BAD_VERSION"} <= set(refused)
    assert taken > 2_000
