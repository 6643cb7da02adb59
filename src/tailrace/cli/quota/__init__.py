"""`tailrace quota`.

commands  show, set
entities  users, client ids and addresses, as options name them and as they are shown
"""
