"""The former name of `krein.plotting`, kept so that `from krein.display import SpectrumDisplay` goes on working."""

from krein.plotting import *  # noqa: F403
