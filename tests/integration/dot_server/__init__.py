"""django-oauth-toolkit as a live server: a Django project as small as it can be.

python -m tests.integration.dot_server migrate | seed COUNT | serve

settings   from the environment; grace and lifetimes are chosen per process
validator  records what became of each refresh token presented
endpoint   the token endpoint seen from outside: arrived, processed, answered
record     where both write: a file of JSON lines
"""
