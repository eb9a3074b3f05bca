"""The browser pages: rewards, traces and verifier disagreements."""
