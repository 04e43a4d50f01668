"""Parameters as a blob and a manifest."""

import io

import ml_dtypes
import numpy as np
import pytest

from common import messages, weights
from common.errors import WireError
from common.types import Version

VERSION = Version(2, 7)


def pack(params, version=VERSION, dtype="bfloat16", chunk_bytes=weights.CHUNK_BYTES):
    file = io.BytesIO()
    tensors = weights.write(file, weights.wire_leaves(params, dtype))
    blob = file.getvalue()
    return blob, weights.describe(blob, version, tensors, chunk_bytes)


def unpack(blob, manifest):
    return weights.tree(weights.views(blob, manifest.tensors))


def make_params():
    rng = np.random.default_rng(0)
    return {
        "encoder": {str(i): {"w": rng.normal(size=(3, 5)).astype(np.float32)} for i in range(3)},
        "scale": np.float32(1.5),
        "table": {"ids": np.arange(7, dtype=np.int32)},
    }


def flatten(tree, prefix=()):
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for key in tree for k, v in flatten(tree[key], (*prefix, key)).items()}


def test_float32_round_trip_is_exact():
    params = make_params()
    blob, manifest = pack(params, VERSION, "float32")
    got, expected = flatten(unpack(blob, manifest)), flatten(params)
    assert got.keys() == expected.keys()
    for path, value in expected.items():
        assert got[path].dtype == value.dtype and not got[path].flags.writeable
        np.testing.assert_array_equal(got[path], value)


def test_bfloat16_halves_floats_and_leaves_integers():
    params = make_params()
    for path, value in flatten(unpack(*pack(params))).items():
        sent = flatten(params)[path]
        if sent.dtype == np.float32:
            sent = sent.astype(ml_dtypes.bfloat16)
        assert value.dtype == sent.dtype
        np.testing.assert_array_equal(value, sent)


def test_jax_arrays_are_packed_as_numpy_arrays_are():
    jnp = pytest.importorskip("jax.numpy")
    params = {"w": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)}
    of_jax = {"w": jnp.asarray(params["w"])}
    assert pack(of_jax, VERSION) == pack(params, VERSION)


def test_a_manifest_survives_its_message_whatever_its_size():
    params = {f"block_{i:04d}": {"w": np.zeros(1, np.float32)} for i in range(3000)}
    _, manifest = pack(params, VERSION, chunk_bytes=256)
    frames = manifest.to_message("MANIFEST")
    assert len(frames[1]) > messages.MAX_HEADER_BYTES
    assert weights.Manifest.from_message(*messages.unpack(frames)) == manifest


def test_chunks_tile_the_blob():
    blob, manifest = pack(make_params(), VERSION, chunk_bytes=100)
    chunks = [blob[manifest.chunk(i)] for i in range(len(manifest.chunk_sha256))]
    assert b"".join(chunks) == blob
    assert all(weights.verify_chunk(chunk, i, manifest) for i, chunk in enumerate(chunks))
    assert not weights.verify_chunk(chunks[0], 1, manifest)
    assert not weights.verify_chunk(chunks[-1] + b"x", len(chunks) - 1, manifest)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 1},
        {"sha256": "../../secret"},
        {"base": "b" * 63},
        {"chunk_sha256": ()},
        {"tensors": ()},
        {"tensors": (("scale", "float32", (), 64),)},
        {"tensors": (("scale", "object", (), 0),)},
        {"tensors": (("scale", "float32", (-1,), 0),)},
        {"tensors": ((b"scale", "float32", (), 0),)},
        {"tensors": (1, 2)},
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(change):
    _, manifest = pack({"scale": np.float32(1)}, VERSION, "float32")
    frames = manifest._replace(**change).to_message("MANIFEST")
    with pytest.raises(WireError, match="BAD_"):
        weights.Manifest.from_message(*messages.unpack(frames))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"a": {}},
        {"a": [np.zeros(2, np.float32)]},
        {"a/b": np.zeros(2, np.float32)},
        {1: np.zeros(2, np.float32)},
        {"a": np.array([object()])},
        {"a": np.array([1.0, np.nan], np.float32)},
        np.zeros(2, np.float32),
    ],
)
def test_trees_that_would_not_come_back_are_not_packed(params):
    with pytest.raises(ValueError):
        pack(params, VERSION)
