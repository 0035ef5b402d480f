"""Programs that are drawn: run, made smaller and stored; and the state machine over live callables."""
