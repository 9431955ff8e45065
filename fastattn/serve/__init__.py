"""An HTTP server in the dialects that clients of other servers speak: ``fastattn serve`` (``fastattn[serve]``)."""
