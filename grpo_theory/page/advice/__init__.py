"""An advice from rollouts, as it is shown: sections of words and tables, as text or a web page, with curves; and as JSON."""
