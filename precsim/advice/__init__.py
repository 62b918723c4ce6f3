"""What to choose, and how sure that is."""
