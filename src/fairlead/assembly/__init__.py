"""The one place that picks implementations: settings in, a working fairlead out."""
