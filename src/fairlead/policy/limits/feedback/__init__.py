"""What one answer of a provider says about its rate limits (G3). All pure; nothing here ever raises.

reply     an answer as these parsers see it, and what it states about limits
read      strict readers of numbers, members, headers and XML: what cannot be read is as good as absent
dialect   ``heard(dialect, reply)``: the table of dialects, and what all of them understand
standard  RateLimit headers in all their forms, X-RateLimit-*

and one module per vendor: shopify, hubspot, salesforce, stripe, netsuite, mercadolibre.
"""
