"""The refresh coordinator's engine room: one refresh per generation, through any crash (T4-T8, R5-R13).

reader       a caller asks for a token: serve, refresh in the background, or wait for one
coordinator  single flight in this process, then the plan: serve, wait, start, recover, judge
exchange     one send: preflight, INTENT, SENT, the answer and what it means
settle       an answer becomes the new generation: journal, then compare-and-set
unknown      sends without an answer: the journal first, then the provider's replay policy
handlers     the jobs that keep every connection fresh
"""
