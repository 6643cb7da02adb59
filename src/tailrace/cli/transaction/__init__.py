"""`tailrace transaction`.

commands  list, show, abort
view      rows and details, for people or as JSON
"""
