"""What the library, the command and the service share: version, errors, settings, suggestions."""
