"""Programs on disk, for people and other processes: folders of them, and how two differ."""

from orion_ane.artefacts.diff import Difference, diff
from orion_ane.artefacts.folder import Folder, read_folder, write_folder
from orion_ane.artefacts.manifest import Entry, Manifest

__all__ = [
    "Difference",
    "Entry",
    "Folder",
    "Manifest",
    "diff",
    "read_folder",
    "write_folder",
]
