"""The client without asyncio, generated from ``_async``: edit that package."""
