"""What happens to the results of the layers before they are a record, a file a stage."""
