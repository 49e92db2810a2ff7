"""What runs a job: it joins the other rooms and adds no rule of its own."""
