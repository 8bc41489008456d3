"""Identities are the same in every version of the program, because clients store them."""

from __future__ import annotations

import pytest

from gleanery.models.elements import IdentityFields
from gleanery.storage.outputs.hashes import IdentityHasher

OUTPUT = IdentityFields("job", "https://shop.example/1")


@pytest.mark.parametrize(
    ("identity_format", "expected"),
    [
        (0, "03fda6f2170b44d62fad6c7d8ec7ffae"),
        (1, "4821dd3103fda6f2170b44d62fad6c7d"),
        (2, "4821dd31bc9403fda6f2170b44d62fad"),
    ],
)
def test_an_identity_is_bytes_of_the_group_then_of_the_job_then_of_all(
    identity_format: int, expected: str
) -> None:
    hasher = IdentityHasher(1, "group", None, identity_format)
    key_hash = hasher.key_hash(OUTPUT)
    assert {hasher.identity("job", key_hash).hex() for _ in range(2)} == {expected}


def test_the_organization_the_group_the_job_and_the_key_decide_the_identity() -> None:
    hashers = [
        IdentityHasher(organization_id, group, None, 2)
        for organization_id in (1, 11)
        for group in ("group", "1group")
    ]
    outputs = [IdentityFields(job, "url", key) for job in ("a", "b") for key in ("1", "2")]
    identities = {
        hasher.identity(output.job_id, hasher.key_hash(output))
        for hasher in hashers
        for output in outputs
    }
    assert len(identities) == 16
