"""Speaking the OpenAI protocol: parsing it (pure) and a client."""
