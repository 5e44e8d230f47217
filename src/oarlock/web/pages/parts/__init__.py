"""What every page is made of: its view, its template, formats, languages, plots, live updates."""
