"""What clients receive."""
