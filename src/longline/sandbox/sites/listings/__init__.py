"""Three property sites that advertise the same properties."""
