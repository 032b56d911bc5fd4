"""The refresh of credentials: one per generation, through any crash. Spec: T4-T8, R5-R13.

reader            a caller asks for a token: return it, refresh in the background, or wait for a refresh
coordinator       one refresh in flight per connection in this process, and the plan of its steps
request_sender    one send: preflight, INTENT, SENT, POST
response_handler  what a response means, and what it stops
settle            a response becomes the new generation: journal, then compare-and-set
unknown_outcomes  sends without a response: the journal first, then the provider's replay policy
refresh_jobs      the jobs that keep every connection fresh
"""
