"""The integration with Scrapy: an add-on that stores items, files and cookies in Gleanery."""

from __future__ import annotations

try:
    import scrapy as _scrapy  # noqa: F401
except ImportError as error:
    raise ImportError(
        "The integration with Scrapy needs Scrapy: pip install 'gleanery[scrapy]' "
        "(in a clone '.[scrapy]')"
    ) from error

from gleanery.integrations.scrapy.addon import Addon
from gleanery.integrations.scrapy.pipeline import GleaneryPipeline
from gleanery.integrations.scrapy.settings import GleanerySettings

__all__ = ["Addon", "GleaneryPipeline", "GleanerySettings"]
