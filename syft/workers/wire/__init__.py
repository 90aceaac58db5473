"""What workers say to each other: data that both ends know."""
