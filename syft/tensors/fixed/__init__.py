"""Fixed precision: numbers as integers on a grid."""
