"""Text from outside: names, numbers, encodings, XML, redaction."""
