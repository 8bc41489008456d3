"""What every part of the service uses: errors, values, models, security, scheduling, logs."""
