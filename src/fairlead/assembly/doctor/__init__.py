"""The checks of `fairlead doctor`."""
