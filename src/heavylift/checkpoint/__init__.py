"""What the files of a checkpoint really hold."""
