"""The time that an idempotency key adds to a large batch."""

from __future__ import annotations

import time

from tests.support.outputs import output
from tests.support.service import Client


def test_a_key_adds_little_to_a_large_batch(client: Client, engine: str) -> None:
    batch = [output(number, data={"text": "x" * 1000}) for number in range(10_000)]
    seconds = []
    for headers in ({}, {}, {"Idempotency-Key": "k"}):
        began = time.perf_counter()
        client.post("/v1/outputs/group", json=batch, headers=headers).raise_for_status()
        seconds.append(time.perf_counter() - began)
    first, again, with_key = seconds
    print(
        f"\n{engine}: stored in {first:.2f} s, again in {again:.2f} s, with a key {with_key:.2f} s"
    )
    assert with_key < 3 * first
