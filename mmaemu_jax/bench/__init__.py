"""The benchmark: speed, memory and call overhead, as ratios to XLA's float32 dot in one run.

``case`` says what is measured, ``driver`` starts a process per row, ``worker`` is that process
(``program``, ``timing``, ``memory``, ``peer`` do its work), ``table`` prints.
"""
