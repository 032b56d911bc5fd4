"""Classification of responses: succeeded, partly failed, refused or failed, and what to do next.

classifier    `classify(rules, response)`: the entry point
rules         the rules of one connection: its own, its provider's, the built-in ones
match         the search for the rule that matches
context       one response with all that rules can ask of it
error_fields  the fields of a body that say what went wrong: codes and messages of all vendors
status        what a status means if no rule matches
verdict       the result
recording     a response from a file, to try rules on

graphql, soap_fault, batch and user_errors read bodies that rules alone cannot. All of it is pure, and no
response makes it raise. Spec: C3, C4.
"""
