"""The policies that are trained: small causal language models from scratch, or any Hugging Face folder. Torch lives here."""
