"""The Neural Engine itself, through private classes that any update of macOS may change."""
