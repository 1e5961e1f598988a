"""The user's own episodes: read them from files (`load_episodes`), or record them (`record.py`).

The arrays of a file, of a Minari data set or of a LeRobot folder are brought into one layout
(`arrays.py`), checked (`check.py`), and become `RecordedEpisodes`.
"""

from nps.worlds.custom.check import Channels
from nps.worlds.custom.episodes import RecordedEpisodes
from nps.worlds.custom.load import load_episodes

__all__ = ["Channels", "RecordedEpisodes", "load_episodes"]
