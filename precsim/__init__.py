"""precsim."""
