"""The rooms where decisions of policy become acts through ports."""
