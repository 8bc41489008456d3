"""What library, command and service share: version, errors, settings and spelling suggestions."""
