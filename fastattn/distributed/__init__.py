"""Texts in many files on many machines: cut into blocks, whose distribution is Ray Data's. Needs the extra ``ray``."""
