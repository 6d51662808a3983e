"""Model descriptions, weight files, tokenizers and where they come from. No torch."""
