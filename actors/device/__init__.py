"""Devices over adb."""
