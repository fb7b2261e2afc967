"""What a runtime reports of itself: figures, log lines, crashes."""
