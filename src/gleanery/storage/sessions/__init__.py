"""Session state in the database: cookies and local storage, with encrypted values."""
