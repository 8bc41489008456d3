"""The targets of ``make fuzz``, with their seeds and with inputs that once failed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import connection
from fuzz.targets import TARGETS
from tests.support.service import Client

EXAMPLES = int(os.environ.get("GLEANERY_FUZZ_EXAMPLES", "20"))
SLOWER = max(1, EXAMPLES // 4)


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """Stops the service that one of the targets starts."""
    yield
    if connection.service.cache_info().currsize:
        connection.service().stop()
        connection.service.cache_clear()


@st.composite
def bent(draw: st.DrawFn, seed: bytes) -> bytes:
    """The seed with some of its bytes replaced."""
    start = draw(st.integers(0, len(seed)))
    stop = draw(st.integers(start, min(len(seed), start + 20)))
    return seed[:start] + draw(st.binary(max_size=20)) + seed[stop:]


@pytest.mark.thorough
@pytest.mark.parametrize("name", TARGETS)
def test_random_bytes_break_no_target(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds:
        target.run(seed)
    near = st.sampled_from(target.seeds).flatmap(bent)

    @settings(
        max_examples=SLOWER if name == "connection" else EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(near | st.binary(max_size=100))
    def hold(data: bytes) -> None:
        target.run(data)

    hold()


# --- what was found -------------------------------------------------------------------------------


def test_any_depth_of_nesting_is_rejected(client: Client) -> None:
    """Around the interpreter's limit, reading still succeeded where writing did not."""
    inside = b'"\\ud83d\\ude00",1234567890123456789'
    lines = [b"[" * depth + inside + b"]" * depth for depth in range(900, 1000)]
    headers = {"Content-Type": "application/x-ndjson"}
    answer = client.post("/v1/outputs/group", content=b"\n".join(lines), headers=headers)
    assert answer.status_code == 422, answer.text
    assert len(answer.json()["detail"]) == len(lines) + 1  # and how far it came


@pytest.mark.parametrize("id_", ["ab" * 15 + "  ", " " * 32, "ab " * 10 + "ab"])
def test_a_link_to_an_id_with_spaces_is_rejected(client: Client, id_: str) -> None:
    query = {"organization": "1", "expires": "99999999999", "signature": "ab"}
    answer = client.get(f"/v1/blobs/{id_}", params=query)
    assert answer.status_code == 403, answer.text
