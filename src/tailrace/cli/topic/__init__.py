"""`tailrace topic`.

commands        list, show, create, alter, delete
delete_records  the command of that name
deletion        the plan of a deletion of records: where partitions begin, and where they are to begin
view            rows and details, for people or as JSON
"""
