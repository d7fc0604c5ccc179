"""What a log can prove (floor 13): consistency, the requests it stands for, and why something was done."""
