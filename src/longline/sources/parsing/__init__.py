"""Values as people write them: numbers, money, dates, durations, areas, floors."""
