"""Playwright: browser contexts with a stored login, and downloads that become files.

``async_api`` and ``sync_api`` have the same names, as the modules of Playwright.
"""

try:
    import playwright as _playwright  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "gleanery.integrations.playwright needs Playwright: pip install 'gleanery[playwright]' "
        "(in a clone '.[playwright]')",
        name=error.name,
    ) from error
