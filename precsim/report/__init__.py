"""Results for people and programs: a view, which computes nothing."""
