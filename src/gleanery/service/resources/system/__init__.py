"""What describes the service itself: health, metrics, API description, and the console's files."""
