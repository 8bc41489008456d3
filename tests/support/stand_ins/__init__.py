"""Programs that stand for sudo, systemctl and journalctl, where no systemd runs."""
