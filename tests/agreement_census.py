def write_census(r): pass
