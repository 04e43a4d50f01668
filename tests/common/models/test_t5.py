import math

import numpy as np

from common.models.t5 import relative_bucket


def _slow_bucket(distance, bidirectional, buckets, max_distance):
    """Raffel et al. (2020), as their code says it, for one key minus query position."""
    bucket = 0
    if bidirectional:
        buckets //= 2
        bucket = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    if distance < buckets // 2:
        return bucket + distance
    near = buckets // 2
    far = near + int(math.log(distance / near) / math.log(max_distance / near) * (buckets - near))
    return bucket + min(far, buckets - 1)


def test_relative_buckets_agree_with_a_slow_twin():
    distances = np.arange(-300, 301)
    for bidirectional in (True, False):
        found = relative_bucket(distances, bidirectional, 32, 128)
        expected = [_slow_bucket(int(d), bidirectional, 32, 128) for d in distances]
        np.testing.assert_array_equal(found, expected)
        unused = {16} if bidirectional else set()  # distance 0 is in bucket 0
        assert set(found) == set(range(32)) - unused
