"""The native operators in C++, and the script that compiles them. It is no part of the installed package."""
