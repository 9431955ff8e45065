"""The version, alone, so that packaging can read it without importing the engine."""

VERSION = "1.0.0"
