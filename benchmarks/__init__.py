"""Measurements, run by ``make bench``. Never part of the tests."""
