"""Orion: language models on Apple's Neural Engine, and the very same programs anywhere."""
