"""Commands that talk with a model (floor 15): turns, decisions of people, forks, and how a turn looks on a screen."""
