"""A package, and no mere folder: CrypTen installs one of this name, which would be found first."""
