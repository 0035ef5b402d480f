"""Attention whose scores a program changes, `flex_attention`: one kernel that holds the program's functions."""
