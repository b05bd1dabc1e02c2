"""Engine logs, metrics and GPU tools read into records."""
