"""doit tasks of elfkiln."""


def task_hello():
    return {"actions": None}
