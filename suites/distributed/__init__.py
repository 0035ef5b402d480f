"""Training over several processes, its layers compiled one by one: DDP, FSDP2 and tensor parallel, held to eager."""
