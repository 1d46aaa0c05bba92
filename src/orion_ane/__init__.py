"""Orion: language models on Apple's Neural Engine, and the very same programs anywhere."""

__version__: str


def __getattr__(name: str) -> str:
    # Asked for rarely, and the metadata reader is slow to import: so only when asked.
    if name == "__version__":
        from importlib.metadata import version

        return version("orion-ane")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
