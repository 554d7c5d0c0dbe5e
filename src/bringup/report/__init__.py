"""Records to a report, a report to text. Pure: writing files is for the face."""
