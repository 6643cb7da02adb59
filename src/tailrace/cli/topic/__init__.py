"""`tailrace topic`.

commands  list, show, create, alter, delete
view      rows and details, for people or as JSON
"""
