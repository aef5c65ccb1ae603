"""The kernel workbench: what there is (``listing``), is it right (``checking``), is it faster (``bench``), how it
compiled (``showing``). ``commands`` is its part of the command line."""
