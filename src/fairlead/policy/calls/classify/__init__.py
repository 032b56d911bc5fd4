"""What an answer of an API means: done, in part, refused or failed, and what may be done about it (C3, C4).

strategy      how long to wait before the next try, and whether there is one
text_match    globs and regular expressions that cannot take long
pattern       one rule, as people write it: what it matches and what follows
rules         the rules of one connection: its own, its provider's, those that ship
verdict       what came out
judge         ``judge(rules, reply, told)``: the one way in
tell          the parts of an answer that say what went wrong: codes and messages, wherever vendors put them
meaning       what a status says where no rule knows better
recording     an answer from a file, to try all this out

and a module for each kind of body that data alone cannot read: graphql, soap, batch. All pure; no answer,
however hostile, makes anything here raise.
"""
