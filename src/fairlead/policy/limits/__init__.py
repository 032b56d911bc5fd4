"""The gate's decisions: which limits a call must pass, and how each of them counts. All pure.

``limit`` says what the limits of one call are; ``bucket``, ``pool`` and ``breaker`` how each kind counts;
``key`` under which names they are kept. The Lua scripts of the Redis gate do the same arithmetic, and the
contract suite runs both against each other, so these modules are the definition.

Times are whole microseconds of the gate's clock, units of a limit whole micro-units: both are exact in a
double, which is all the numbers that Lua has.
"""
