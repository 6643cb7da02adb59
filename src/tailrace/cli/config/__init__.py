"""`tailrace config`.

commands  show, set
view      the configs of a broker, for people or as JSON
"""
