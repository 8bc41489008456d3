"""The service: everything that needs the extra ``server``. Only its commands import it."""
