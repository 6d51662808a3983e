"""What to ask the model and what of its answer to show. Knows no socket and no tensor."""
