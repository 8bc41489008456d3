"""Work over several resources: sweep, retention, keys, restore, removal of organizations."""
