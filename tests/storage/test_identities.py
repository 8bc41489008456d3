"""Identities and hashes of URLs are the same in every version, because they are stored."""

from __future__ import annotations

import pytest

from gleanery.service.resources.outputs.elements import IdentityFields, IdentityHasher, url_hash

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


@pytest.mark.parametrize(
    ("identity_format", "expected"),
    [
        (0, "59295bcb63a58c58e3b431d47a45645c"),
        (1, "59295bcb63a58c58e3b431d47a45645c"),
        (2, "900659295bcb63a58c58e3b431d47a45"),
    ],
)
def test_the_hash_of_a_url_is_bytes_of_the_site_then_of_all(
    identity_format: int, expected: str
) -> None:
    assert url_hash("https://shop.example/1", identity_format).hex() == expected


def test_the_hashes_of_urls_begin_with_their_site() -> None:
    same = (
        "https://a.example",
        "https://a.example/",
        "https://a.example/b",
        "https://a.example//c",
    )
    other = (
        "https://b.example/b",
        "http://a.example/b",
        "a.example",
        "",
        "/",
        "///",
        "//a.example",
    )
    starts = [{url_hash(url, 2)[:2] for url in urls} for urls in (same, other)]
    assert len(starts[0]) == 1
    assert not starts[0] & starts[1]
    assert len({url_hash(url, 2) for url in same + other}) == len(same + other)
