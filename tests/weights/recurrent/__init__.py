"""Recurrent encoder-decoders: mapping files, e2k, thai2rom, PyTorch's tutorial, OpenNMT-py."""
