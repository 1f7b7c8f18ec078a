"""Checks of learning: does training on the device reach the quality of fp32 on the host, as fast and no faster?"""
