"""The built-in study types, one folder each. No study type imports another."""
