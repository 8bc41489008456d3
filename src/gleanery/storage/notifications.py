"""Subscriptions to notification channels in this process; both engines use them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Subscription:
    """Receives the notifications of one channel, from its registration on."""

    def __init__(self) -> None:
        self._notified = asyncio.Event()
        self._is_stopped = False

    async def wait(self, seconds: float) -> bool:
        """Wait for a notification. Return False after a timeout, or if it was stopped."""
        if not self._is_stopped:
            try:
                await asyncio.wait_for(self._notified.wait(), seconds)
            except TimeoutError:
                return False
            self._notified.clear()
        return not self._is_stopped

    def notify(self) -> None:
        self._notified.set()

    def stop(self) -> None:
        """End the current wait and all later ones."""
        self._is_stopped = True
        self._notified.set()


class Subscriptions:
    """All subscriptions of a process, by channel."""

    def __init__(self) -> None:
        self._by_channel: dict[str, set[Subscription]] = {}
        self._is_stopped = False

    def __bool__(self) -> bool:
        return bool(self._by_channel)

    @contextmanager
    def add(self, channel: str, subscription: Subscription) -> Iterator[Subscription]:
        """Register the subscription until the context ends."""
        self._by_channel.setdefault(channel, set()).add(subscription)
        if self._is_stopped:
            subscription.stop()
        try:
            yield subscription
        finally:
            self._by_channel[channel].discard(subscription)
            if not self._by_channel[channel]:
                del self._by_channel[channel]

    def channels(self) -> list[str]:
        return list(self._by_channel)

    def notify(self, channel: str) -> None:
        for subscription in self._by_channel.get(channel, ()):
            subscription.notify()

    def notify_all(self) -> None:
        for channel in self._by_channel:
            self.notify(channel)

    def stop(self) -> None:
        """Stop all subscriptions, and those that are added later."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for subscriptions in self._by_channel.values():
            for subscription in subscriptions:
                subscription.stop()
