"""Packages, so that a module has one name whoever imports it, and no installed package of that name comes first."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "goldens"
