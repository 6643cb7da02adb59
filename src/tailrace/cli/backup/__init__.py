"""`tailrace backup`.

commands  create, list, verify, restore, prune
view      plans and results, for people or as JSON
"""
